#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/chat_parser.h"

namespace {

using lapidary::ChatEvent;
using lapidary::ChatEventKind;

// What a client makes of the events.
struct Streamed {
  std::string content, reasoning;
  std::vector<std::string> names, arguments;
  std::vector<bool> ended;
  bool operator==(const Streamed&) const = default;
};

void Collect(const std::vector<ChatEvent>& events, Streamed& out) {
  for (const ChatEvent& event : events) {
    lapidary::Json(event.text).dump();  // throws when it is not UTF-8
    const bool begins = event.kind == ChatEventKind::kCallName;
    const bool is_call = begins || event.kind == ChatEventKind::kCallArguments || event.kind == ChatEventKind::kCallEnd;
    if (is_call && event.call + (begins ? 0 : 1) != out.names.size()) std::abort();
    if (begins) {
      out.names.push_back(event.text);
      out.arguments.emplace_back();
      out.ended.push_back(false);
    }
    if (event.kind == ChatEventKind::kContent) out.content += event.text;
    if (event.kind == ChatEventKind::kReasoning) out.reasoning += event.text;
    if (event.kind == ChatEventKind::kCallArguments) out.arguments.back() += event.text;
    if (event.kind == ChatEventKind::kCallEnd) out.ended.back() = true;
  }
}

Streamed Feed(std::string_view text, size_t piece, const lapidary::ChatParserOptions& options) {
  lapidary::ChatParser parser(options);
  Streamed out;
  for (size_t at = 0; at < text.size(); at += piece) Collect(parser.Push(text.substr(at, piece)), out);
  Collect(parser.Finish(), out);
  return out;
}

}  // namespace

// Any answer is taken apart alike under every cut, and arguments are always one JSON object. The first byte holds the
// options and the size of pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const lapidary::ChatParserOptions options{(data[0] & 1) != 0, (data[0] & 2) == 0};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Streamed whole = Feed(text, size, options);
  if (Feed(text, 1, options) != whole || Feed(text, 2 + data[0] / 4, options) != whole) std::abort();
  for (const std::string& arguments : whole.arguments) {
    if (!lapidary::ParseJson(arguments, "arguments").is_object()) std::abort();
  }
  return 0;
}
