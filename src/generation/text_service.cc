#include "generation/text_service.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace lapidary {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// A request from Submit to its end.
struct Answer {
  Answer(const Tokenizer* tokenizer, SequenceRequest sequence_request, AnswerSubmission submission)
      : request(std::move(sequence_request)),
        reader(tokenizer, submission.request.reader),
        sink(std::move(submission.sink)) {
    end.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  }

  AnswerId id = 0;
  SequenceRequest request;
  AnswerReader reader;
  AnswerSink sink;
  Clock::time_point submitted = Clock::now();
  bool started = false;  // a step has taken up the prompt
  AnswerEnd end;

  // The delta of one step. Tokens behind the one that ends the answer came from a draft: without speculation they would
  // not be.
  AnswerDelta Read(const SequenceUpdate& update) {
    AnswerDelta delta;
    delta.prompt_logprobs.assign(update.prompt_logprobs.begin(), update.prompt_logprobs.end());
    for (size_t i = 0; i < update.tokens.size() && !reader.stopped(); ++i) {
      delta.ids.push_back(update.tokens[i]);
      if (!update.logprobs.empty()) delta.logprobs.push_back(update.logprobs[i]);
      for (ChatEvent& event : reader.Push(update.tokens[i])) delta.events.push_back(std::move(event));
    }
    end.answer_tokens += static_cast<int64_t>(delta.ids.size());
    end.cached_tokens = update.cached_prompt_tokens;
    if (end.timings.first_token_s == 0 && !delta.ids.empty()) {
      end.timings.first_token_s = Seconds(Clock::now() - submitted);
    }
    return delta;
  }

  void Finish(FinishReason finish, AnswerDelta delta) {
    for (ChatEvent& event : reader.Finish()) delta.events.push_back(std::move(event));
    end.finish = finish;
    end.reasoning_tokens = reader.reasoning_tokens();
    end.complete_calls = reader.complete_calls();
    end.timings.total_s = Seconds(Clock::now() - submitted);
    delta.end = std::move(end);
    sink(std::move(delta));
  }
};

}  // namespace

class TextService::Worker {
 public:
  Worker(const std::string& folder, Backend& backend, const TextServiceOptions& options)
      : model_(folder, backend.plan()),
        engine_(backend, options.engine),
        engine_options_(engine_.options()),
        capacity_(engine_options_.max_sequences + options.max_waiting) {
    counters_.engine = engine_.counters();
    thread_ = std::thread([this] { Run(); });
  }

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const TextModel& model() const { return model_; }
  const EngineOptions& engine_options() const { return engine_options_; }
  int64_t capacity() const { return capacity_; }

  std::optional<std::vector<AnswerId>> Submit(std::vector<AnswerSubmission> submissions);
  void Cancel(AnswerId id) { Tell(cancels_, id); }
  void Resume(AnswerId id) { Tell(resumes_, id); }
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  int64_t live() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  TextServiceCounters counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  SequenceRequest Checked(AnswerRequest& request) const;
  void Tell(std::vector<AnswerId>& ids, AnswerId id) {
    {
      const std::lock_guard lock(mutex_);
      ids.push_back(id);
    }
    wake_.notify_one();
  }
  bool HasWork() const {
    return stopping_ || !inbox_.empty() || !cancels_.empty() || !resumes_.empty() || !engine_.idle();
  }

  // These run on the service's thread.
  void Run();
  bool TakeInbox();
  void Drop(AnswerId id);
  void Begin(std::unique_ptr<Answer> answer);
  void Step();
  void NoteStarts(Clock::time_point step_began);
  void Take(const SequenceUpdate& update);
  void FailStep(const Error& error);
  void End(std::map<SequenceId, std::unique_ptr<Answer>>::iterator answer, FinishReason finish, AnswerDelta delta);
  void Publish();

  TextModel model_;
  Engine engine_;
  EngineOptions engine_options_;
  int64_t capacity_;

  mutable std::mutex mutex_;  // guards what follows, up to `thread_`
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Answer>> inbox_;
  std::vector<AnswerId> cancels_, resumes_;
  TextServiceCounters counters_;
  int64_t live_ = 0;
  AnswerId next_id_ = 1;
  bool closed_ = false, stopping_ = false;

  std::thread thread_;
  // Of the service's thread alone.
  std::map<SequenceId, std::unique_ptr<Answer>> answers_;  // in the engine, in order of arrival
  std::map<AnswerId, SequenceId> sequences_;
};

SequenceRequest TextService::Worker::Checked(AnswerRequest& request) const {
  request.reader.stop = request.options.stop;
  SequenceRequest sequence = model_.MakeRequest(std::move(request.prompt), request.options);
  sequence.eos_ids.insert(sequence.eos_ids.end(), request.stop_ids.begin(), request.stop_ids.end());
  sequence.top_logprobs = request.top_logprobs;
  sequence.prompt_logprobs = request.prompt_logprobs;
  return sequence;
}

std::optional<std::vector<AnswerId>> TextService::Worker::Submit(std::vector<AnswerSubmission> submissions) {
  std::vector<std::unique_ptr<Answer>> answers;
  for (AnswerSubmission& submission : submissions) {
    SequenceRequest sequence = Checked(submission.request);
    answers.push_back(std::make_unique<Answer>(model_.tokenizer(), std::move(sequence), std::move(submission)));
  }
  const auto count = static_cast<int64_t>(answers.size());
  std::vector<AnswerId> ids;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || live_ + count > capacity_) {
      counters_.refused += count;
      return std::nullopt;
    }
    live_ += count;
    counters_.submitted += count;
    for (auto& answer : answers) {
      ids.push_back(answer->id = next_id_++);
      inbox_.push_back(std::move(answer));
    }
  }
  wake_.notify_one();
  return ids;
}

void TextService::Worker::Run() {
  while (TakeInbox()) {
    if (!engine_.idle()) Step();
    Publish();
  }
  while (!answers_.empty()) End(answers_.begin(), FinishReason::kCancelled, {});
}

// Waits for something to do. Returns false when the service ends.
bool TextService::Worker::TakeInbox() {
  std::deque<std::unique_ptr<Answer>> arrived;
  std::vector<AnswerId> cancelled, resumed;
  bool stopping;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return HasWork(); });
    arrived.swap(inbox_);
    cancelled.swap(cancels_);
    resumed.swap(resumes_);
    stopping = stopping_;
  }
  for (auto& answer : arrived) Begin(std::move(answer));
  for (const AnswerId id : cancelled) Drop(id);
  for (const AnswerId id : resumed) {
    if (const auto found = sequences_.find(id); found != sequences_.end()) engine_.Resume(found->second);
  }
  return !stopping;
}

void TextService::Worker::Drop(AnswerId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  engine_.Cancel(found->second);
  answers_.erase(found->second);
  sequences_.erase(found);
  const std::lock_guard lock(mutex_);
  --live_;
  ++counters_.cancelled;
}

void TextService::Worker::Begin(std::unique_ptr<Answer> answer) {
  const AnswerId id = answer->id;
  try {
    const SequenceId sequence = engine_.Add(answer->request);
    answers_.emplace(sequence, std::move(answer));
    sequences_.emplace(id, sequence);
  } catch (const Error& error) {
    answer->end.error = error;
    {
      const std::lock_guard lock(mutex_);
      --live_;
      ++counters_.failed;
    }
    answer->Finish(FinishReason::kNone, {});
  }
}

void TextService::Worker::Step() {
  const Clock::time_point began = Clock::now();
  try {
    const std::span<const SequenceUpdate> updates = engine_.Step();
    NoteStarts(began);
    for (const SequenceUpdate& update : updates) Take(update);
  } catch (const Error& error) {
    FailStep(error);
  } catch (const std::exception& error) {
    FailStep(Error(ErrorKind::kDevice, error.what()));
  }
}

void TextService::Worker::NoteStarts(Clock::time_point step_began) {
  for (auto& [sequence, answer] : answers_) {
    if (answer->started || engine_.CachedTokens(sequence) == 0) continue;
    answer->started = true;
    answer->end.timings.queue_s = std::max(0.0, Seconds(step_began - answer->submitted));
  }
}

void TextService::Worker::Take(const SequenceUpdate& update) {
  const auto found = answers_.find(update.id);
  if (found == answers_.end()) return;
  Answer& answer = *found->second;
  AnswerDelta delta = answer.Read(update);
  const FinishReason finish = answer.reader.stopped() ? FinishReason::kStop : update.finish;
  if (finish != FinishReason::kNone) {
    End(found, finish, std::move(delta));
  } else if (!answer.sink(std::move(delta))) {
    engine_.Pause(update.id);
  }
}

// The engine has dropped the sequences of the step. One that fails without any would fail for ever: then all end.
void TextService::Worker::FailStep(const Error& error) {
  const auto failed = [this](const auto& answer) { return !engine_.Has(answer.first); };
  const bool all = std::none_of(answers_.begin(), answers_.end(), failed);
  for (auto answer = answers_.begin(); answer != answers_.end();) {
    const auto ended = answer++;
    if (!all && !failed(*ended)) continue;
    ended->second->end.error = error;
    End(ended, FinishReason::kNone, {});
  }
  const std::lock_guard lock(mutex_);
  ++counters_.failed_steps;
}

void TextService::Worker::End(std::map<SequenceId, std::unique_ptr<Answer>>::iterator answer, FinishReason finish,
                              AnswerDelta delta) {
  const std::unique_ptr<Answer> ended = std::move(answer->second);
  engine_.Cancel(answer->first);
  sequences_.erase(ended->id);
  answers_.erase(answer);
  {
    const std::lock_guard lock(mutex_);
    --live_;
    counters_.stopped += finish == FinishReason::kStop;
    counters_.reached_length += finish == FinishReason::kLength;
    counters_.cancelled += finish == FinishReason::kCancelled;
    counters_.failed += finish == FinishReason::kNone;
  }
  ended->Finish(finish, std::move(delta));
}

void TextService::Worker::Publish() {
  const std::lock_guard lock(mutex_);
  counters_.engine = engine_.counters();
}

TextService::TextService(const std::string& folder, Backend& backend, const TextServiceOptions& options)
    : worker_(std::make_unique<Worker>(folder, backend, options)) {}
TextService::~TextService() = default;

const TextModel& TextService::model() const { return worker_->model(); }
const EngineOptions& TextService::engine_options() const { return worker_->engine_options(); }
int64_t TextService::capacity() const { return worker_->capacity(); }
std::optional<std::vector<AnswerId>> TextService::Submit(std::vector<AnswerSubmission> submissions) {
  return worker_->Submit(std::move(submissions));
}
void TextService::Cancel(AnswerId id) { worker_->Cancel(id); }
void TextService::Resume(AnswerId id) { worker_->Resume(id); }
void TextService::Close() { worker_->Close(); }
int64_t TextService::live() const { return worker_->live(); }
TextServiceCounters TextService::counters() const { return worker_->counters(); }

}  // namespace lapidary
