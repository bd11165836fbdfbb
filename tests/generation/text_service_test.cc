#include "generation/text_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "../engine/fake_backend.h"
#include "base/error.h"
#include "generation/text_generator.h"
#include "small_tokenizer.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Small = SmallTokenizer;

int32_t C(char c) { return Small::Character(c); }

// Collects what one request got; any thread may wait for its end.
class Collector {
 public:
  AnswerSink sink() {
    return [this](AnswerDelta delta) {
      const std::lock_guard lock(mutex_);
      for (const ChatEvent& event : delta.events) text_ += event.text;
      ids_.insert(ids_.end(), delta.ids.begin(), delta.ids.end());
      logprobs_ += delta.logprobs.size();
      prompt_logprobs_ += delta.prompt_logprobs.size();
      if (delta.end) end_ = delta.end;
      ++deltas_;
      changed_.notify_all();
      return deltas_ != full_at_;
    };
  }

  // Says that there is no room after this many deltas.
  void FullAt(int deltas) { full_at_ = deltas; }

  AnswerEnd Wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [this] { return end_.has_value(); })) {
      ADD_FAILURE() << "no end";
      return {};
    }
    return *end_;
  }
  bool WaitForDeltas(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return deltas_ >= count; });
  }

  std::string text() const { return Locked(text_); }
  std::vector<int32_t> ids() const { return Locked(ids_); }
  size_t logprobs() const { return Locked(logprobs_); }
  size_t prompt_logprobs() const { return Locked(prompt_logprobs_); }

 private:
  template <typename T>
  T Locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::vector<int32_t> ids_;
  size_t logprobs_ = 0, prompt_logprobs_ = 0;
  int deltas_ = 0, full_at_ = -1;
  std::optional<AnswerEnd> end_;
};

class TextServiceTest : public ::testing::Test {
 protected:
  TextServiceTest() : backend_({.vocab = 1000, .max_position_embeddings = 100'000}) {
    folder_.Write("tokenizer.json", Small::JsonText());
    folder_.Write("generation_config.json", R"({"eos_token_id": 1})");
  }

  // The model says 'a' for longer than any test waits.
  void SayForEver() {
    backend_.script = [](std::span<const int32_t>) { return C('a'); };
    backend_.on_step = [](const StepBatch&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  }

  // The model says the ids, then <eos>, after a prompt of one token.
  void Say(std::vector<int32_t> answer) {
    backend_.script = [answer = std::move(answer)](std::span<const int32_t> text) {
      return text.size() - 1 < answer.size() ? answer[text.size() - 1] : Small::kEos;
    };
  }

  static AnswerSubmission Request(Collector& collector, GenerateOptions options = {},
                                  std::vector<int32_t> prompt = {Small::kBos}) {
    return {.request = {.prompt = std::move(prompt), .options = std::move(options), .reader = {}},
            .sink = collector.sink()};
  }
  static std::optional<AnswerId> Submit(TextService& service, AnswerSubmission submission) {
    std::vector<AnswerSubmission> one;
    one.push_back(std::move(submission));
    const auto ids = service.Submit(std::move(one));
    return ids ? std::optional(ids->front()) : std::nullopt;
  }

  static void WaitUntil(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(condition());
  }

  TemporaryFolder folder_;
  FakeBackend backend_;
};

TEST_F(TextServiceTest, StreamsAnAnswer) {
  Say({Small::Word("alpha"), Small::Word(" beta"), C('!')});
  TextService service(folder_.path(), backend_, {});
  Collector collector;
  ASSERT_TRUE(Submit(service, Request(collector)));
  const AnswerEnd end = collector.Wait();
  EXPECT_EQ(collector.text(), "alpha beta!");
  EXPECT_THAT(collector.ids(), ElementsAre(Small::Word("alpha"), Small::Word(" beta"), C('!')));
  EXPECT_EQ(end.finish, FinishReason::kStop);
  EXPECT_EQ(end.prompt_tokens, 1);
  EXPECT_EQ(end.answer_tokens, 3);
  EXPECT_GT(end.timings.first_token_s, 0);
  EXPECT_GE(end.timings.total_s, end.timings.first_token_s);
  EXPECT_EQ(service.live(), 0);
  EXPECT_EQ(service.counters().stopped, 1);
}

// Many at once, sampled: each answer is the one it gets alone.
TEST_F(TextServiceTest, AnswersInACrowdAreThoseAlone) {
  constexpr int kCount = 24;
  const auto options = [](int i) {
    return GenerateOptions{
        .max_new_tokens = 30, .temperature = 1.0, .seed = static_cast<uint64_t>(i), .ignore_eos = true};
  };
  const auto prompt = [](int i) { return std::vector<int32_t>(static_cast<size_t>(1 + i % 7), C('a')); };
  std::vector<std::vector<int32_t>> alone;
  {
    TextGenerator generator(folder_.path(), backend_, {});
    for (int i = 0; i < kCount; ++i) alone.push_back(generator.GenerateFromIds(prompt(i), options(i), {}).ids);
  }
  TextService service(folder_.path(), backend_, {.engine = {.max_sequences = 5, .step_tokens = 16}});
  std::vector<Collector> collectors(kCount);
  std::vector<std::thread> clients;
  for (int i = 0; i < kCount; ++i) {
    clients.emplace_back([&, i] { EXPECT_TRUE(Submit(service, Request(collectors[i], options(i), prompt(i)))); });
  }
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(collectors[i].Wait().finish, FinishReason::kLength);
    EXPECT_EQ(collectors[i].ids(), alone[i]) << i;
  }
  EXPECT_THAT(backend_.faults, ::testing::IsEmpty());
}

TEST_F(TextServiceTest, TheQueueIsBounded) {
  Say(std::vector<int32_t>(250, C('a')));
  std::mutex gate;
  gate.lock();
  backend_.on_step = [&](const StepBatch&) { const std::lock_guard wait(gate); };
  TextService service(folder_.path(), backend_, {.engine = {.max_sequences = 1}, .max_waiting = 2});
  EXPECT_EQ(service.capacity(), 3);
  std::vector<Collector> collectors(6);
  EXPECT_TRUE(Submit(service, Request(collectors[0])));
  EXPECT_TRUE(Submit(service, Request(collectors[1])));
  // All or none.
  std::vector<AnswerSubmission> two;
  two.push_back(Request(collectors[2]));
  two.push_back(Request(collectors[3]));
  EXPECT_FALSE(service.Submit(std::move(two)));
  EXPECT_TRUE(Submit(service, Request(collectors[4])));
  EXPECT_FALSE(Submit(service, Request(collectors[5])));
  EXPECT_EQ(service.counters().refused, 3);
  gate.unlock();
  for (const int i : {0, 1, 4}) EXPECT_EQ(collectors[static_cast<size_t>(i)].Wait().answer_tokens, 250);
  EXPECT_TRUE(Submit(service, Request(collectors[5])));
  collectors[5].Wait();
}

TEST_F(TextServiceTest, CancelsInTheQueueAndWhileItRuns) {
  SayForEver();
  TextService service(folder_.path(), backend_, {.engine = {.max_sequences = 1}});
  for (int round = 0; round < 20; ++round) {
    Collector running, waiting;
    const auto first = Submit(service, Request(running));
    const auto second = Submit(service, Request(waiting));
    ASSERT_TRUE(first && second);
    EXPECT_TRUE(running.WaitForDeltas(2));
    service.Cancel(*second);
    service.Cancel(*first);
    service.Cancel(12345);
    WaitUntil([&] { return service.live() == 0; });
    WaitUntil([&] { return service.counters().engine.running == 0 && service.counters().engine.used_blocks[1] == 0; });
  }
}

// Its place goes to those that wait, and it goes on with the text that it has alone.
TEST_F(TextServiceTest, AnAnswerWithoutRoomIsPausedAndHoldsUpNobody) {
  const GenerateOptions options{.max_new_tokens = 50, .temperature = 1.0, .seed = 7, .ignore_eos = true};
  TextService service(folder_.path(), backend_, {.engine = {.max_sequences = 1}});
  Collector slow, other, again;
  slow.FullAt(5);
  const std::optional<AnswerId> id = Submit(service, Request(slow, options));
  ASSERT_TRUE(id);
  WaitUntil([&] { return service.counters().engine.paused == 1; });
  EXPECT_EQ(slow.ids().size(), 5u);
  ASSERT_TRUE(Submit(service, Request(other, options)));
  EXPECT_EQ(other.Wait().answer_tokens, 50);
  EXPECT_EQ(service.live(), 1);
  EXPECT_EQ(slow.ids().size(), 5u);
  service.Resume(*id);
  EXPECT_EQ(slow.Wait().answer_tokens, 50);
  EXPECT_EQ(slow.ids(), other.ids());
  // Cancelled while it is paused.
  again.FullAt(1);
  const std::optional<AnswerId> second = Submit(service, Request(again, options));
  WaitUntil([&] { return service.counters().engine.paused == 1; });
  service.Cancel(*second);
  service.Resume(*second);
  WaitUntil([&] { return service.live() == 0 && service.counters().engine.paused == 0; });
  EXPECT_THAT(backend_.faults, ::testing::IsEmpty());
}

TEST_F(TextServiceTest, AStepThatFailsReachesOnlyItsRequests) {
  Say(std::vector<int32_t>(40, C('a')));
  std::atomic<int> steps = 0;
  backend_.on_step = [&](const StepBatch&) {
    if (++steps == 10) Throw(ErrorKind::kDevice, "layer 3: not finite");
  };
  TextService service(folder_.path(), backend_, {.engine = {.max_sequences = 2, .prefix_cache = false}});
  std::vector<Collector> collectors(4);
  std::vector<AnswerSubmission> all;
  for (Collector& collector : collectors) all.push_back(Request(collector));
  ASSERT_TRUE(service.Submit(std::move(all)));
  for (const size_t i : {0, 1}) {
    const AnswerEnd end = collectors[i].Wait();
    EXPECT_EQ(end.finish, FinishReason::kNone);
    ASSERT_TRUE(end.error);
    EXPECT_EQ(end.error->kind(), ErrorKind::kDevice);
    EXPECT_THAT(end.error->what(), HasSubstr("layer 3"));
  }
  for (const size_t i : {2, 3}) EXPECT_EQ(collectors[i].Wait().answer_tokens, 40);
  EXPECT_EQ(service.counters().failed_steps, 1);
  EXPECT_EQ(service.counters().failed, 2);
}

TEST_F(TextServiceTest, RefusesWhatCannotRun) {
  TextService service(folder_.path(), backend_, {});
  Collector collector;
  EXPECT_THROW(Submit(service, Request(collector, {.stop = {""}})), Error);
  ASSERT_TRUE(Submit(service, Request(collector, {}, {5000})));
  const AnswerEnd end = collector.Wait();
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(service.live(), 0);
}

TEST_F(TextServiceTest, GivesLogprobs) {
  Say({C('a'), C('b'), C('c')});
  TextService service(folder_.path(), backend_, {});
  Collector collector;
  AnswerSubmission submission = Request(collector);
  submission.request.top_logprobs = 3;
  submission.request.prompt_logprobs = true;
  submission.request.prompt = {Small::kBos, C('a'), C('b')};
  ASSERT_TRUE(Submit(service, std::move(submission)));
  const AnswerEnd end = collector.Wait();
  EXPECT_EQ(collector.logprobs(), static_cast<size_t>(end.answer_tokens));
  EXPECT_EQ(collector.prompt_logprobs(), 2u);
}

TEST_F(TextServiceTest, EndsWhatRunsWhenItGoes) {
  SayForEver();
  std::vector<Collector> collectors(3);
  {
    TextService service(folder_.path(), backend_, {});
    for (Collector& collector : collectors) ASSERT_TRUE(Submit(service, Request(collector)));
    EXPECT_TRUE(collectors[0].WaitForDeltas(1));
    service.Close();
    Collector late;
    EXPECT_FALSE(Submit(service, Request(late)));
  }
  for (Collector& collector : collectors) EXPECT_EQ(collector.Wait().finish, FinishReason::kCancelled);
}

}  // namespace
}  // namespace lapidary
