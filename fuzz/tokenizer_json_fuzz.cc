// Arbitrary bytes as a tokenizer.json; what parses then encodes and decodes the same bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {
namespace {

void Use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool match_special : {true, false}) {
    const std::vector<int32_t> ids = tokenizer.Encode(text, {.add_bos = true, .match_special = match_special});
    IncrementalDecoder decoder(tokenizer, match_special);
    for (const int32_t id : ids) decoder.Push(id);
    decoder.Finish();
    tokenizer.Decode(ids, match_special);
  }
}

}  // namespace
}  // namespace lapidary

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const lapidary::Tokenizer tokenizer = lapidary::Tokenizer::Parse(text, "input");
    lapidary::Use(tokenizer, text.substr(0, 4096));
    lapidary::Use(tokenizer,
                  "Hello  \xF0\x9F\x98\x8A\xFF aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa <bos>\n\n");
  } catch (const lapidary::Error&) {
  }
  return 0;
}
