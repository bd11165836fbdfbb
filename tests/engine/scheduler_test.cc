#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "engine_runs.h"
#include "fake_backend.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kSliding = 0, kFull = 1;

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Served {
  Answer answer;
  int64_t cached = 0;
};

// Runs one request to its end on an engine that may have run others.
Served Serve(Engine& engine, const SequenceRequest& request) {
  Served served;
  const SequenceId id = engine.Add(request);
  while (!engine.idle()) {
    for (const SequenceUpdate& update : engine.Step()) {
      if (update.id != id) continue;
      served.answer.tokens.insert(served.answer.tokens.end(), update.tokens.begin(), update.tokens.end());
      served.answer.finish = update.finish;
      served.cached = update.cached_prompt_tokens;
    }
  }
  return served;
}

void ExpectIdle(const Engine& engine) {
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.running + counters.waiting, 0);
  EXPECT_THAT(counters.used_blocks, ElementsAre(0, 0));
}

// Field report 22: the same prompt again computes its last token alone, below and above the window of 100, whether or
// not the prompt ends with a block.
TEST(PrefixReuse, FieldReport22AnExactHitComputesOneToken) {
  for (const int64_t length : {2, 64, 65, 99, 128, 130, 200, 256, 700}) {
    FakeBackend backend({});
    Engine engine(backend, {.max_context = 1000});
    const SequenceRequest request = Request(Prompt(length, 3), 150);
    const Answer alone = RunOne({}, request, {.prefix_cache = false});
    EXPECT_EQ(Serve(engine, request).cached, 0);
    for (int i = 0; i < 3; ++i) {
      const int64_t rows = backend.rows;
      const Served again = Serve(engine, request);
      EXPECT_EQ(again.answer, alone) << length;
      EXPECT_EQ(again.cached, length - 1);
      EXPECT_EQ(backend.rows - rows, 150);
    }
    EXPECT_THAT(backend.faults, IsEmpty());
    ExpectIdle(engine);
  }
}

// A backend that cannot copy blocks shares whole ones.
TEST(PrefixReuse, WithoutCopiesWholeBlocksAreShared) {
  for (const int64_t length : {2, 64, 65, 99, 128, 130, 200, 256, 700}) {
    FakeBackend backend({.copies = false});
    Engine engine(backend, {.max_context = 1000});
    const SequenceRequest request = Request(Prompt(length, 3), 150);
    Serve(engine, request);
    const Served again = Serve(engine, request);
    EXPECT_EQ(again.answer, RunOne({}, request, {.prefix_cache = false}));
    EXPECT_EQ(again.cached, (length - 1) / kKvBlockTokens * kKvBlockTokens);
    EXPECT_THAT(backend.faults, IsEmpty());
  }
}

TEST(PrefixReuse, FieldReport22PromptsThatPartGoOnFromThere) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 2000, .cache_tokens = 20000});
  const std::vector<int32_t> text = Prompt(1464, 5);
  Serve(engine, Request(text, 20));
  for (const size_t place : {100, 600, 1400}) {
    std::vector<int32_t> other(text.begin(), text.begin() + static_cast<ptrdiff_t>(place));
    other.push_back((text[place] + 1) % 40);
    other = Joined(other, Prompt(30, place));
    const Served served = Serve(engine, Request(other, 20));
    EXPECT_EQ(served.answer, RunOne({}, Request(other, 20), {.prefix_cache = false}));
    EXPECT_EQ(served.cached, static_cast<int64_t>(place));
  }
  EXPECT_THAT(backend.faults, IsEmpty());
}

// Field report 23: each turn of a chat that is much longer than the window computes its new tokens alone, although the
// cache of the windows is as small as it gets.
TEST(PrefixReuse, FieldReport23ATurnComputesItsNewTokensAlone) {
  FakeBackend backend({.max_position_embeddings = 6000});
  Engine engine(backend, {.step_tokens = 64});
  std::vector<int32_t> chat = Prompt(2000, 1);
  int64_t known = 0;
  for (uint64_t turn = 0; turn < 20; ++turn) {
    const Served served = Serve(engine, Request(chat, 90));
    EXPECT_EQ(served.cached, known);
    EXPECT_EQ(served.answer, RunOne({.max_position_embeddings = 6000}, Request(chat, 90), {.prefix_cache = false}));
    chat = Joined(chat, served.answer.tokens);
    known = static_cast<int64_t>(chat.size()) - 1;  // the last token was never run
    chat = Joined(chat, Prompt(77, 100 + turn));
  }
  EXPECT_THAT(backend.faults, IsEmpty());
  ExpectIdle(engine);
}

// A system prompt longer than the window: the first request does not know where it ends, the second one sees where they
// part and keeps that window, the third one goes on from there, however small the cache.
TEST(PrefixReuse, ACommonBeginningIsKeptOnceTwoPromptsPart) {
  FakeBackend backend({.max_position_embeddings = 6000});
  Engine engine(backend, {.max_context = 3000, .step_tokens = 64});
  const std::vector<int32_t> system = Prompt(1010, 1);
  std::vector<int64_t> cached;
  for (uint64_t i = 0; i < 5; ++i) {
    std::vector<int32_t> prompt = system;
    prompt.push_back(static_cast<int32_t>(i));
    prompt = Joined(prompt, Prompt(900, 50 + i));
    const Served served = Serve(engine, Request(prompt, 20));
    EXPECT_EQ(served.answer, RunOne({.max_position_embeddings = 6000}, Request(prompt, 20), {.prefix_cache = false}));
    cached.push_back(served.cached);
  }
  EXPECT_EQ(cached[0], 0);
  EXPECT_THAT(std::vector<int64_t>(cached.begin() + 2, cached.end()), ElementsAre(1010, 1010, 1010));
  EXPECT_THAT(backend.faults, IsEmpty());
}

TEST(PrefixReuse, RunningSequencesShareBlocks) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 1000, .max_sequences = 4});
  const std::vector<int32_t> text = Prompt(640, 1);
  engine.Add(Request(Joined(text, {1}), 300));
  while (engine.CachedTokens(1) < 640) engine.Step();
  for (int32_t i = 2; i < 5; ++i) engine.Add(Request(Joined(text, {i}), 100));
  engine.Step();
  EXPECT_EQ(engine.counters().used_blocks[kFull], 10 + 4);
  // Together from the beginning: the blocks are made one as they fill.
  Engine other(backend, {.max_context = 1000, .max_sequences = 4});
  for (int32_t i = 1; i < 5; ++i) other.Add(Request(Joined(text, {i}), 100));
  const auto answers = [](Engine& e) { return RunAll(e); };
  while (other.CachedTokens(4) < 641) other.Step();
  EXPECT_EQ(other.counters().used_blocks[kFull], 10 + 4);
  answers(other);
  ExpectIdle(other);
}

TEST(PrefixReuse, ScoringAPromptComputesAllOfIt) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 1000});
  SequenceRequest request = Request(Prompt(300, 1), 2);
  Serve(engine, request);
  request.prompt_logprobs = true;
  const SequenceId id = engine.Add(request);
  size_t scored = 0;
  while (!engine.idle()) {
    for (const SequenceUpdate& update : engine.Step()) {
      EXPECT_EQ(update.id, id);
      EXPECT_EQ(update.cached_prompt_tokens, 0);
      scored += update.prompt_logprobs.size();
    }
  }
  EXPECT_EQ(scored, 299u);
}

TEST(Scheduler, ShortPromptsDoNotWaitForALongOne) {
  FakeBackend backend({.max_position_embeddings = 20000});
  Engine engine(backend, {.max_context = 10000, .max_sequences = 8, .step_tokens = 64, .cache_tokens = 40000});
  engine.Add(Request(Prompt(6000, 1), 5));
  engine.Step();
  std::vector<SequenceId> quick;
  for (uint64_t i = 0; i < 3; ++i) quick.push_back(engine.Add(Request(Prompt(30, 10 + i), 5)));
  std::vector<SequenceId> seen;
  for (int step = 0; step < 3; ++step) {
    for (const SequenceUpdate& update : engine.Step()) seen.push_back(update.id);
  }
  for (const SequenceId id : quick) EXPECT_THAT(seen, ::testing::Contains(id));
}

// Nobody's stream stands still while prompts are read, and prompts go on when many decode.
TEST(Scheduler, DecodesAndPromptsGoOnTogether) {
  FakeBackend backend({.max_position_embeddings = 4000, .memory = 1});
  Engine engine(backend, {.max_context = 1000, .max_sequences = 12, .step_tokens = 8, .cache_tokens = 12000});
  for (uint64_t i = 0; i < 10; ++i) {
    SequenceRequest request = Request(Prompt(4, i, 6), 400);
    request.speculation = Speculation::kNgram;
    engine.Add(request);
  }
  for (int i = 0; i < 20; ++i) engine.Step();
  const SequenceId late = engine.Add(Request(Prompt(50, 77), 5));
  for (int step = 0; step < 20; ++step) EXPECT_GE(engine.Step().size(), 10u);
  EXPECT_GE(engine.CachedTokens(late), 40);
  EXPECT_LE(backend.max_rows, 12);
}

// Field report 37: more than fits at once. All answer as if they were alone, the first as soon as if it were.
TEST(Scheduler, FieldReport37TogetherTooLargeForTheCache) {
  const FakeBackend::Options model{.max_position_embeddings = 1000};
  for (const bool prefix_cache : {false, true}) {
    FakeBackend backend(model);
    Engine engine(backend, {.max_context = 640,
                            .max_sequences = 6,
                            .step_tokens = 48,
                            .cache_tokens = 1000,
                            .prefix_cache = prefix_cache});
    std::vector<SequenceRequest> requests;
    for (uint64_t i = 0; i < 6; ++i) {
      requests.push_back(Request(Prompt(60 + 3 * static_cast<int64_t>(i), i), 400));
      if (i % 2) requests.back().sampling.temperature = 0.8;
      engine.Add(requests.back());
    }
    int64_t first_done = 0, steps = 0;
    std::map<SequenceId, Answer> answers;
    while (!engine.idle()) {
      ++steps;
      for (const SequenceUpdate& update : engine.Step()) {
        Answer& answer = answers[update.id];
        answer.tokens.insert(answer.tokens.end(), update.tokens.begin(), update.tokens.end());
        answer.finish = update.finish;
        if (update.id == 1 && update.finish != FinishReason::kNone) first_done = steps;
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(answers[static_cast<SequenceId>(i + 1)], RunOne(model, requests[i], {.max_context = 640}));
    }
    EXPECT_LE(first_done, 412);
    EXPECT_GT(engine.counters().preemptions, 0);
    EXPECT_THAT(backend.faults, IsEmpty());
    ExpectIdle(engine);
  }
}

// Scores of a prompt survive that its sequence has to give way.
TEST(Scheduler, PromptLogprobsComeOnceAfterPreemption) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 512, .max_sequences = 2, .step_tokens = 16, .cache_tokens = 512});
  engine.Add(Request(Prompt(60, 1), 400));
  for (int i = 0; i < 20; ++i) engine.Step();
  SequenceRequest scoring = Request(Prompt(100, 2), 300);
  scoring.prompt_logprobs = true;
  scoring.top_logprobs = 1;
  const SequenceId id = engine.Add(scoring);
  size_t scored = 0, tokens = 0, logprobs = 0;
  while (!engine.idle()) {
    for (const SequenceUpdate& update : engine.Step()) {
      if (update.id != id) continue;
      scored += update.prompt_logprobs.size();
      tokens += update.tokens.size();
      logprobs += update.logprobs.size();
    }
  }
  EXPECT_GT(engine.counters().preemptions, 0);
  EXPECT_EQ(scored, 99u);
  EXPECT_EQ(tokens, 300u);
  EXPECT_EQ(logprobs, 300u);
  EXPECT_THAT(backend.faults, IsEmpty());
}

TEST(Scheduler, CancellingInAnyStateGivesEverythingBack) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 512, .max_sequences = 3, .step_tokens = 32, .cache_tokens = 700});
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    std::vector<SequenceId> ids;
    for (uint64_t i = 0; i < 5; ++i) ids.push_back(engine.Add(Request(Prompt(100 + round, random() % 3), 200)));
    for (int step = static_cast<int>(random() % 30); step > 0; --step) engine.Step();
    std::shuffle(ids.begin(), ids.end(), random);
    for (const SequenceId id : ids) {
      engine.Cancel(id);
      if (random() % 2) engine.Step();
    }
    ASSERT_TRUE(engine.idle());
    ExpectIdle(engine);
  }
  EXPECT_THAT(backend.faults, IsEmpty());
}

TEST(Scheduler, APausedSequenceHoldsNothingAndGoesOnAsIfItHadNot) {
  for (const bool prefix_cache : {false, true}) {
    FakeBackend backend({});
    Engine engine(backend, {.max_context = 512, .step_tokens = 32, .prefix_cache = prefix_cache});
    const SequenceRequest request = Request(Prompt(100, 1), 200);
    const SequenceId first = engine.Add(request), second = engine.Add(Request(Prompt(50, 2), 10));
    Answer answer;
    const auto step = [&] {
      for (const SequenceUpdate& update : engine.Step()) {
        if (update.id != first) continue;
        answer.tokens.insert(answer.tokens.end(), update.tokens.begin(), update.tokens.end());
        answer.finish = update.finish;
      }
    };
    while (answer.tokens.size() < 30) step();
    engine.Pause(first);
    engine.Pause(first);
    EXPECT_EQ(engine.counters().paused, 1);
    EXPECT_THAT(engine.counters().used_blocks, ElementsAre(0, 0));
    while (!engine.idle()) step();
    EXPECT_FALSE(engine.Has(second));
    EXPECT_TRUE(engine.Has(first));
    EXPECT_EQ(answer.tokens.size(), 30u);
    // In the queue too, and before those that came later.
    const SequenceId third = engine.Add(Request(Prompt(50, 3), 10));
    engine.Resume(first);
    engine.Pause(first);
    engine.Resume(first);
    engine.Resume(first);
    step();
    EXPECT_GT(engine.CachedTokens(first), 0);
    EXPECT_EQ(engine.CachedTokens(third), 0);
    while (!engine.idle()) step();
    EXPECT_EQ(answer, RunOne({}, request, {.prefix_cache = false}));
    EXPECT_THAT(backend.faults, IsEmpty());
    ExpectIdle(engine);
  }
}

struct RandomCase {
  const char* name;
  int64_t window, cache_tokens, step_tokens;
  int max_sequences;
  bool copies, prefix_cache;
};

class SchedulerRandom : public ::testing::TestWithParam<RandomCase> {
 protected:
  using Key = std::tuple<std::vector<int32_t>, int64_t, bool, bool>;

  // At most `tokens` tokens of one of `texts` texts. Drawn one after the other, so that all compilers draw the same.
  std::vector<int32_t> RandomPrompt(uint64_t tokens, uint64_t texts) {
    const uint64_t text = random_() % texts;
    return Prompt(1 + static_cast<int64_t>(random_() % tokens), text);
  }

  // Prompts are beginnings of few texts, so that they share, or earlier conversations, so that they go on.
  SequenceRequest RandomRequest() {
    SequenceRequest request;
    if (!conversations_.empty() && random_() % 3 == 0) {
      request.prompt = conversations_[random_() % conversations_.size()];
    } else {
      request.prompt = RandomPrompt(300, 3);
    }
    if (random_() % 2) request.prompt = Joined(request.prompt, RandomPrompt(20, 1000));
    request.prompt.resize(std::min<size_t>(request.prompt.size(), 300));
    request.max_new_tokens = 1 + static_cast<int64_t>(random_() % 200);
    if (random_() % 2) request.eos_ids = {3};
    if (random_() % 2) request.sampling.temperature = 0.8;
    if (random_() % 2) request.speculation = Speculation::kNgram;
    return request;
  }

  // What the request gives alone, in one go, without any of what is tested.
  const Answer& Alone(const SequenceRequest& request) {
    const Key key{request.prompt, request.max_new_tokens, request.sampling.temperature > 0, request.eos_ids.empty()};
    const auto found = alone_.find(key);
    if (found != alone_.end()) return found->second;
    SequenceRequest plain = request;
    plain.speculation = Speculation::kNone;
    return alone_[key] = RunOne(model_, plain, {.max_context = 460, .prefix_cache = false});
  }

  void Take(const SequenceUpdate& update) {
    auto& [request, answer] = under_way_.at(update.id);
    answer.tokens.insert(answer.tokens.end(), update.tokens.begin(), update.tokens.end());
    answer.finish = update.finish;
    if (update.finish == FinishReason::kNone) return;
    ASSERT_EQ(answer, Alone(request)) << update.id;
    if (conversations_.size() > 20) conversations_.clear();
    conversations_.push_back(Joined(request.prompt, answer.tokens));
    under_way_.erase(update.id);
    ++finished_;
  }

  void Cancel(Engine& engine) {
    auto it = std::next(under_way_.begin(), static_cast<ptrdiff_t>(random_() % under_way_.size()));
    const auto& [request, answer] = it->second;
    const std::vector<int32_t>& whole = Alone(request).tokens;
    ASSERT_LE(answer.tokens.size(), whole.size());
    ASSERT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
    engine.Cancel(it->first);
    under_way_.erase(it);
  }

  // One of those under way, or one that was paused.
  void PauseOrResume(Engine& engine) {
    if (!paused_.empty() && random_() % 4 > 0) {
      engine.Resume(paused_.back());
      paused_.pop_back();
    } else if (!under_way_.empty()) {
      paused_.push_back(std::next(under_way_.begin(), static_cast<ptrdiff_t>(random_() % under_way_.size()))->first);
      engine.Pause(paused_.back());
    }
  }
  void ResumeAll(Engine& engine) {
    for (const SequenceId id : paused_) engine.Resume(id);
    paused_.clear();
  }

  std::mt19937 random_{7};
  std::vector<SequenceId> paused_;
  FakeBackend::Options model_;
  std::map<SequenceId, std::pair<SequenceRequest, Answer>> under_way_;
  std::vector<std::vector<int32_t>> conversations_;
  std::map<Key, Answer> alone_;
  int finished_ = 0;
};

TEST_P(SchedulerRandom, AnswersAreThoseOfEachAlone) {
  const RandomCase& c = GetParam();
  model_ = {.max_position_embeddings = 500, .window = c.window, .memory = 1 << 30, .copies = c.copies};
  FakeBackend backend(model_);
  Engine engine(backend, {.max_context = 460,
                          .max_sequences = c.max_sequences,
                          .step_tokens = c.step_tokens,
                          .cache_tokens = c.cache_tokens,
                          .prefix_cache = c.prefix_cache});
  const auto step = [&] {
    for (const SequenceUpdate& update : engine.Step()) Take(update);
    const EngineCounters counters = engine.counters();
    ASSERT_LE(counters.running, c.max_sequences);
    ASSERT_EQ(counters.running + counters.waiting + counters.paused, static_cast<int64_t>(under_way_.size()));
    for (const int g : {kSliding, kFull}) {
      const auto i = static_cast<size_t>(g);
      ASSERT_LE(counters.used_blocks[i] + counters.cached_blocks[i], counters.total_blocks[i]);
    }
  };
  for (int i = 0; i < 10000 && !HasFatalFailure(); ++i) {
    const auto choice = random_() % 20;
    if (choice < 2 && under_way_.size() < 12) {
      const SequenceRequest request = RandomRequest();
      under_way_[engine.Add(request)] = {request, {}};
    } else if (choice == 2 && !under_way_.empty()) {
      if (random_() % 3 == 0) Cancel(engine);
    } else if (choice == 3) {
      if (random_() % 4 == 0) PauseOrResume(engine);
    } else {
      step();
    }
    if (random_() % 500 == 0) {
      ResumeAll(engine);
      for (int steps = 0; !engine.idle() && steps < 100000 && !HasFatalFailure(); ++steps) step();
      ASSERT_TRUE(engine.idle());
      ExpectIdle(engine);
    }
  }
  EXPECT_THAT(backend.faults, IsEmpty());
  EXPECT_GT(finished_, 100);
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.prefix_hit_tokens > 0, c.prefix_cache);
  RecordProperty("preemptions", static_cast<int>(counters.preemptions));
  if (c.cache_tokens < 1000) {
    EXPECT_GT(counters.preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SchedulerRandom,
                         ::testing::Values(RandomCase{"Roomy", 100, 20000, 64, 6, true, true},
                                           RandomCase{"Tight", 100, 900, 64, 6, true, true},
                                           RandomCase{"JustOne", 100, 460, 32, 4, true, true},
                                           RandomCase{"WithoutCopies", 100, 1500, 64, 6, false, true},
                                           RandomCase{"NoCache", 100, 900, 64, 6, true, false},
                                           RandomCase{"WindowOfOne", 1, 500, 64, 6, true, true},
                                           RandomCase{"WindowOfABlock", 64, 900, 7, 5, true, true},
                                           RandomCase{"StepOfOne", 65, 500, 1, 4, true, true}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lapidary
