#include "cli/answer_printer.h"

namespace lapidary {
namespace {

constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kNormal = "\033[0m";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string WithoutControls(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which some terminals obey too.
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    const bool is_control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || is_c1;
    if (is_control) {
      out += kReplacement;
      i += is_c1 ? 1 : 0;
    } else {
      out += text[i];
    }
  }
  return out;
}

void AnswerPrinter::Add(const ChatEvent& event) {
  const std::string text = style_.plain_controls ? WithoutControls(event.text) : event.text;
  if (event.kind == ChatEventKind::kReasoning && style_.show_thought) {
    if (!in_thought_ && style_.dim_thought) print_(kDim);
    in_thought_ = true;
    print_(text);
  } else if (event.kind == ChatEventKind::kContent) {
    EndThought();
    print_(text);
  }
}

void AnswerPrinter::EndThought() {
  if (!in_thought_) return;
  in_thought_ = false;
  print_(style_.dim_thought ? std::string(kNormal) + "\n" : "\n");
}

void AnswerPrinter::Finish() {
  if (in_thought_ && style_.dim_thought) print_(kNormal);
  in_thought_ = false;
  print_("\n");
}

}  // namespace lapidary
