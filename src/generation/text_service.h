#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/error.h"
#include "chat/chat_parser.h"
#include "engine/engine.h"
#include "generation/answer_reader.h"
#include "generation/generate_options.h"
#include "generation/text_model.h"

namespace lapidary {

struct AnswerRequest {
  std::vector<int32_t> prompt;      // taken as it is
  GenerateOptions options;          // stop texts go to the reader; on_step is not called
  AnswerReaderOptions reader;       // its stop is taken from the options
  std::vector<int32_t> stop_ids{};  // end the answer besides the model's own, also with ignore_eos
  int top_logprobs = -1;            // as in SequenceRequest
  bool prompt_logprobs = false;
};

struct AnswerTimings {
  double queue_s = 0;        // from Submit to the step that took up the prompt
  double first_token_s = 0;  // from Submit to the first token; 0: there is none
  double total_s = 0;        // from Submit to the end
};

struct AnswerEnd {
  FinishReason finish = FinishReason::kNone;  // kNone: `error` says why; kCancelled: the service was closed
  std::optional<Error> error;
  int64_t prompt_tokens = 0, cached_tokens = 0;  // cached ones came from the prefix cache
  int64_t answer_tokens = 0;                     // without the ending eos
  int64_t reasoning_tokens = 0;                  // of these
  int64_t complete_calls = 0;
  AnswerTimings timings;
};

// What one step brought for one request.
struct AnswerDelta {
  std::vector<ChatEvent> events;  // of plain text: kContent only
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;         // [ids] when asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // once when asked for: of the prompt's second token and those behind it
  std::optional<AnswerEnd> end;                // with the last delta
};

// Called on the service's thread, in order, for one request never at the same time. Must not block and must not throw.
// Returns whether it has room for more: if not, the request is paused until Resume, and holds up nobody meanwhile.
using AnswerSink = std::function<bool(AnswerDelta delta)>;

using AnswerId = int64_t;

struct AnswerSubmission {
  AnswerRequest request;
  AnswerSink sink;
};

struct TextServiceOptions {
  EngineOptions engine;
  int64_t max_waiting = 256;  // requests beyond those that run
};

struct TextServiceCounters {
  EngineCounters engine;
  int64_t submitted = 0, refused = 0;  // refused: no room in the queue
  int64_t stopped = 0, reached_length = 0, cancelled = 0, failed = 0;
  int64_t failed_steps = 0;
};

// Many texts at once: a thread that owns an Engine and serves requests from any thread.
class TextService {
 public:
  // Reads from `folder` what TextModel reads and allocates the K/V. Throws what they throw. The backend must outlive
  // it.
  TextService(const std::string& folder, Backend& backend, const TextServiceOptions& options);
  // Ends what still runs with kCancelled.
  ~TextService();
  TextService(const TextService&) = delete;
  TextService& operator=(const TextService&) = delete;

  const TextModel& model() const;
  const EngineOptions& engine_options() const;
  // Requests that can be in the service at once, running or waiting.
  int64_t capacity() const;

  // Takes all requests or none: empty when the queue has no room for them, or after Close. Each sink gets deltas, the
  // last with `end`, unless the request is cancelled. Throws what TextModel::MakeRequest and AnswerReader throw; what
  // Engine::Add refuses comes as the `end` of that request. More requests than capacity() never have room.
  std::optional<std::vector<AnswerId>> Submit(std::vector<AnswerSubmission> submissions);
  // Drops a request in whatever state; `sink` may be called until the service's thread has seen it, and is destroyed
  // then. Unknown or ended ids are ignored.
  void Cancel(AnswerId id);
  // Goes on with a request whose sink had no room. Unknown, ended or running ids are ignored.
  void Resume(AnswerId id);

  // Refuses further requests; those at hand go on.
  void Close();
  // Requests submitted and not ended.
  int64_t live() const;
  // As of the last step.
  TextServiceCounters counters() const;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace lapidary
