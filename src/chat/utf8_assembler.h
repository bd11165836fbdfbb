#pragma once

#include <string>
#include <string_view>

namespace lapidary {

// Bytes cut anywhere -> whole UTF-8 characters. Bytes that are no character become U+FFFD, one for each maximal subpart
// of an ill-formed sequence (Unicode 15, table 3-8), wherever they are cut.
class Utf8Assembler {
 public:
  // The characters that are now whole.
  std::string Push(std::string_view bytes);
  // U+FFFD when a character was begun.
  std::string Finish();

 private:
  std::string held_;  // the beginning of a character
};

}  // namespace lapidary
