#include "chat/chat_parser.h"

#include <optional>
#include <utility>

#include "chat/call_arguments.h"
#include "chat/marker_scanner.h"
#include "chat/markers.h"
#include "chat/utf8_assembler.h"

namespace lapidary {
namespace {

constexpr size_t kMaxNameBytes = 256;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool MayBeInName(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > ' ' && byte != 0x7F && c != '<' && c != '>' && c != '{' && c != '}';
}

}  // namespace

class ChatParser::Impl {
 public:
  explicit Impl(const ChatParserOptions& options)
      : tools_offered_(options.tools_offered),
        ends_with_turn_(options.ends_with_turn),
        mode_(options.starts_in_reasoning ? Mode::kReasoning : Mode::kContent) {}

  std::vector<ChatEvent> Push(std::string_view bytes) {
    PushScanned(scanner_.Push(utf8_.Push(bytes)));
    return TakeEvents();
  }

  std::vector<ChatEvent> PushToken(std::string_view text, bool is_special) {
    FlushPushed();
    if (is_special) {
      if (const AnswerMarker marker = MarkerOf(text); marker != AnswerMarker::kNone) OnMarker(marker, text, true);
    } else {
      OnText(token_utf8_.Push(text));
    }
    return TakeEvents();
  }

  std::vector<ChatEvent> Finish() {
    FlushPushed();
    OnText(token_utf8_.Finish());
    if (mode_ == Mode::kReasoning) FlushLineEnd();
    if (mode_ == Mode::kArguments) EndCall(false);
    mode_ = Mode::kDone;
    return TakeEvents();
  }

  bool done() const { return mode_ == Mode::kDone; }
  const ParsedAnswer& answer() const { return answer_; }

 private:
  enum class Mode : uint8_t {
    kContent,
    kLabel,  // behind the opening of the thought channel
    kReasoning,
    kCallOpening,     // behind the marker that opens a call, up to the brace
    kArguments,       // up to the closing brace
    kAfterArguments,  // up to the marker that closes the call
    kDone,
  };

  // What Push holds back is text as soon as tokens follow, or nothing.
  void FlushPushed() {
    PushScanned(scanner_.Push(utf8_.Finish()));
    OnText(scanner_.Finish());
  }

  void PushScanned(const std::vector<ScannedText>& pieces) {
    for (const ScannedText& piece : pieces) {
      if (piece.marker == AnswerMarker::kNone) {
        OnText(piece.text);
      } else {
        OnMarker(piece.marker, piece.text, false);
      }
    }
  }

  void OnText(std::string_view text) {
    while (!text.empty()) text.remove_prefix(TakeText(text));
  }

  // Takes bytes from the front of `text`, or changes the mode; returns how many.
  size_t TakeText(std::string_view text) {
    switch (mode_) {
      case Mode::kContent:
        AddContent(text);
        return text.size();
      case Mode::kLabel:
        return TakeLabel(text.front());
      case Mode::kReasoning:
        return TakeReasoning(text);
      case Mode::kCallOpening:
        return TakeOpening(text.front());
      case Mode::kArguments:
        return TakeArguments(text);
      case Mode::kAfterArguments:
      case Mode::kDone:
        break;
    }
    return text.size();
  }

  // `exact`: a special token, not only text that looks like one.
  void OnMarker(AnswerMarker marker, std::string_view text, bool exact) {
    switch (mode_) {
      case Mode::kContent:
      case Mode::kReasoning:
        return OnMarkerInText(marker, text, exact);
      case Mode::kLabel:
        mode_ = Mode::kReasoning;  // the label was cut short
        return OnMarkerInText(marker, text, exact);
      case Mode::kCallOpening:
        if (marker == AnswerMarker::kCallClose && BeginCall()) {
          EndCall(true);
          mode_ = Mode::kContent;
          return;
        }
        if (mode_ == Mode::kCallOpening) OpeningIsText();
        return OnMarkerInText(marker, text, exact);
      case Mode::kArguments:
        return OnMarkerInArguments(marker, text, exact);
      case Mode::kAfterArguments:
        if (marker == AnswerMarker::kCallClose) mode_ = Mode::kContent;
        if (marker != AnswerMarker::kCallClose && marker != AnswerMarker::kQuote) LeaveCall(marker, text, exact);
        return;
      case Mode::kDone:
        return;
    }
  }

  void OnMarkerInText(AnswerMarker marker, std::string_view text, bool exact) {
    const bool is_tool_marker = marker == AnswerMarker::kCallOpen || marker == AnswerMarker::kCallClose ||
                                marker == AnswerMarker::kResponseOpen;
    if (is_tool_marker && !tools_offered_) return OnText(text);
    switch (marker) {
      case AnswerMarker::kTurnClose:
      case AnswerMarker::kResponseOpen:
        if (ends_with_turn_) mode_ = Mode::kDone;
        return;
      case AnswerMarker::kChannelOpen:
        if (mode_ == Mode::kReasoning) FlushLineEnd();
        label_bytes_ = 0;
        mode_ = Mode::kLabel;
        return;
      case AnswerMarker::kChannelClose:
        has_line_end_ = false;
        mode_ = Mode::kContent;
        return;
      case AnswerMarker::kCallOpen:
        opening_ = text;
        label_bytes_ = 0;
        name_.clear();
        mode_before_call_ = mode_;
        mode_ = Mode::kCallOpening;
        return;
      case AnswerMarker::kQuote:
        if (!exact) OnText(text);
        return;
      case AnswerMarker::kCallClose:
      case AnswerMarker::kNone:
        return;
    }
  }

  // Inside a string only a special token can end the call, or the marker that does nothing else. The ends of an answer
  // never come as text, as generation stops there.
  void OnMarkerInArguments(AnswerMarker marker, std::string_view text, bool exact) {
    if (marker == AnswerMarker::kQuote) {
      arguments_->AddQuoteMarker();
      return EmitArguments();
    }
    if (marker == AnswerMarker::kCallClose) {
      EndCall(true);
      mode_ = Mode::kContent;
      return;
    }
    if (arguments_->in_string() && !exact) {
      TakeArguments(text);
      return;
    }
    if (marker == AnswerMarker::kChannelOpen || marker == AnswerMarker::kChannelClose) return;
    EndCall(false);
    LeaveCall(marker, text, exact);
  }

  void LeaveCall(AnswerMarker marker, std::string_view text, bool exact) {
    mode_ = Mode::kContent;
    OnMarkerInText(marker, text, exact);
  }

  size_t TakeLabel(char c) {
    if (c == marker::kThoughtLabel[label_bytes_]) {
      if (++label_bytes_ == marker::kThoughtLabel.size()) mode_ = Mode::kReasoning;
      return 1;
    }
    mode_ = Mode::kReasoning;
    AddReasoning(marker::kThoughtLabel.substr(0, label_bytes_));
    return TakeReasoning(std::string_view(&c, 1));
  }

  // Holds back a line end: it may stand before the closing marker.
  size_t TakeReasoning(std::string_view text) {
    FlushLineEnd();
    has_line_end_ = text.back() == '\n';
    AddReasoning(text.substr(0, text.size() - (has_line_end_ ? 1 : 0)));
    return text.size();
  }

  void FlushLineEnd() {
    if (std::exchange(has_line_end_, false)) AddReasoning("\n");
  }

  // "call:", the name, a brace; blanks may stand around them.
  size_t TakeOpening(char c) {
    if (label_bytes_ < marker::kCallLabel.size()) {
      const bool fits = c == marker::kCallLabel[label_bytes_];
      if (!fits && !(label_bytes_ == 0 && IsBlank(c))) return OpeningIsText();
      if (fits) ++label_bytes_;
    } else if (c == '{') {
      return BeginCall() ? 1 : 0;
    } else if (IsBlank(c)) {
      name_ended_ = !name_.empty();
    } else if (name_ended_ || !MayBeInName(c) || name_.size() == kMaxNameBytes) {
      return OpeningIsText();
    } else {
      name_ += c;
    }
    opening_ += c;
    return opening_.size() > 2 * kMaxNameBytes ? OpeningIsText() + 1 : 1;
  }

  // What looked like a call is text where it stands.
  size_t OpeningIsText() {
    mode_ = mode_before_call_;
    name_ended_ = false;
    OnText(std::exchange(opening_, {}));
    return 0;
  }

  // False, with the opening given out as text, when there is no name.
  bool BeginCall() {
    if (name_.empty()) {
      OpeningIsText();
      return false;
    }
    has_line_end_ = false;
    name_ended_ = false;
    answer_.tool_calls.push_back({name_, "", false});
    Add(ChatEventKind::kCallName, name_);
    arguments_.emplace();
    mode_ = Mode::kArguments;
    EmitArguments();
    return true;
  }

  size_t TakeArguments(std::string_view text) {
    arguments_->AddText(text);
    EmitArguments();
    if (arguments_->closed()) {
      EndCall(true);
      mode_ = Mode::kAfterArguments;
    }
    return text.size();
  }

  void EndCall(bool complete) {
    arguments_->Close();
    EmitArguments();
    arguments_.reset();
    answer_.tool_calls.back().complete = complete;
    if (complete) Add(ChatEventKind::kCallEnd, "");
  }

  void EmitArguments() {
    const std::string json = arguments_->Take();
    if (json.empty()) return;
    answer_.tool_calls.back().arguments += json;
    Add(ChatEventKind::kCallArguments, json);
  }

  void AddContent(std::string_view text) {
    answer_.content += text;
    Add(ChatEventKind::kContent, text);
  }

  void AddReasoning(std::string_view text) {
    if (text.empty()) return;
    answer_.reasoning += text;
    Add(ChatEventKind::kReasoning, text);
  }

  void Add(ChatEventKind kind, std::string_view text) {
    const bool is_call = kind != ChatEventKind::kContent && kind != ChatEventKind::kReasoning;
    const size_t call = is_call ? answer_.tool_calls.size() - 1 : 0;
    if (!events_.empty() && events_.back().kind == kind && events_.back().call == call) {
      events_.back().text += text;
    } else {
      events_.push_back({kind, call, std::string(text)});
    }
  }

  std::vector<ChatEvent> TakeEvents() { return std::exchange(events_, {}); }

  const bool tools_offered_, ends_with_turn_;
  Utf8Assembler utf8_, token_utf8_;
  MarkerScanner scanner_;
  Mode mode_;
  size_t label_bytes_ = 0;     // of the thought's or the call's label, so far
  bool has_line_end_ = false;  // held back at the end of the thought
  std::string opening_;        // of what may become a call, with its marker
  std::string name_;
  bool name_ended_ = false;
  Mode mode_before_call_ = Mode::kContent;
  std::optional<CallArguments> arguments_;  // of the open call
  ParsedAnswer answer_;
  std::vector<ChatEvent> events_;
};

ChatParser::ChatParser(const ChatParserOptions& options) : impl_(std::make_unique<Impl>(options)) {}
ChatParser::~ChatParser() = default;
ChatParser::ChatParser(ChatParser&&) noexcept = default;
ChatParser& ChatParser::operator=(ChatParser&&) noexcept = default;

std::vector<ChatEvent> ChatParser::Push(std::string_view text) { return impl_->Push(text); }
std::vector<ChatEvent> ChatParser::PushToken(std::string_view text, bool is_special) {
  return impl_->PushToken(text, is_special);
}
std::vector<ChatEvent> ChatParser::Finish() { return impl_->Finish(); }
bool ChatParser::done() const { return impl_->done(); }
const ParsedAnswer& ChatParser::answer() const { return impl_->answer(); }

}  // namespace lapidary
