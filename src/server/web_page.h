#pragma once

#include <string_view>

namespace lapidary {

// A file of web/, embedded in the program.
struct WebFile {
  std::string_view path;  // on the server: "/" for index.html
  const char* content_type;
  std::string_view etag;  // of these bytes, with its quotes
  std::string_view bytes;
};

// nullptr when there is none at that path.
const WebFile* FindWebFile(std::string_view path);

// What a page may do: run and load its own files, and ask its own server. No script may make HTML of a text.
inline constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

}  // namespace lapidary
