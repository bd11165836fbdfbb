#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "engine_runs.h"
#include "fake_backend.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Engine, GivesTheModelsTokensAndStopsAtTheLimit) {
  FakeBackend backend({});
  backend.script = [](std::span<const int32_t> text) { return (text.back() + 1) % 40; };
  Engine engine(backend, {});
  const SequenceId id = engine.Add(Request({1, 2, 3}, 4));
  const Answer answer = RunAll(engine)[id];
  EXPECT_THAT(answer.tokens, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(backend.rows, 3 + 3);  // the last chosen token is not run
}

TEST(Engine, EosEndsTheAnswerAndIsNotPartOfIt) {
  for (const int32_t eos : {4, 6}) {
    FakeBackend backend({});
    backend.script = [](std::span<const int32_t> text) { return (text.back() + 1) % 40; };
    Engine engine(backend, {});
    SequenceRequest request = Request({1, 2, 3}, -1);
    request.eos_ids = {39, eos};
    const SequenceId id = engine.Add(request);
    const Answer answer = RunAll(engine)[id];
    EXPECT_EQ(answer.tokens.size(), static_cast<size_t>(eos - 4));
    EXPECT_EQ(answer.finish, FinishReason::kStop);
  }
}

TEST(Engine, AFullContextEndsWithLength) {
  const Answer answer = RunOne({}, Request({1, 2, 3}, -1), {.max_context = 50});
  EXPECT_EQ(answer.tokens.size(), 47u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_EQ(RunOne({}, Request(Prompt(49, 1), 500), {.max_context = 50}).tokens.size(), 1u);
}

TEST(Engine, ChunksOfAPromptDoNotChangeTheAnswer) {
  const SequenceRequest request = Request(Prompt(400, 1), 30);
  const Answer whole = RunOne({}, request, {.step_tokens = 1000});
  for (const int64_t chunk : {1, 7, 16, 64, 100, 399}) {
    EXPECT_EQ(RunOne({}, request, {.step_tokens = chunk}), whole) << chunk;
  }
}

TEST(Engine, StepsHaveAtMostTheirRows) {
  FakeBackend backend({.memory = 1});
  Engine engine(backend, {.max_sequences = 5, .step_tokens = 16});
  for (int i = 0; i < 9; ++i) {
    SequenceRequest request = Request(Prompt(20 + i, static_cast<uint64_t>(i)), 60);
    request.speculation = Speculation::kNgram;
    engine.Add(request);
  }
  RunAll(engine);
  EXPECT_EQ(backend.max_rows, 16);
  EXPECT_THAT(backend.faults, IsEmpty());
}

std::vector<SequenceRequest> MixedRequests() {
  std::vector<SequenceRequest> requests;
  for (int i = 0; i < 10; ++i) {
    SequenceRequest request = Request(Prompt(1 + 37 * i, static_cast<uint64_t>(i)), 20 + 15 * i);
    request.eos_ids = {3};
    if (i % 2) request.sampling.temperature = 0.7;
    if (i % 3 == 0) request.sampling.repetition_penalty = 1.3;
    if (i % 4 == 1) request.speculation = Speculation::kNgram;
    request.sampling.seed = static_cast<uint64_t>(i);
    requests.push_back(request);
  }
  return requests;
}

TEST(Engine, AnswersDoNotDependOnNeighbours) {
  for (const int64_t memory : {2, 1000}) {
    const FakeBackend::Options model{.memory = memory};
    for (const int sequences : {1, 3, 20}) {
      FakeBackend backend(model);
      Engine engine(backend, {.max_sequences = sequences, .step_tokens = 33});
      std::vector<SequenceId> ids;
      for (const SequenceRequest& request : MixedRequests()) ids.push_back(engine.Add(request));
      std::map<SequenceId, Answer> answers = RunAll(engine);
      EXPECT_THAT(backend.faults, IsEmpty());
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(answers[ids[i]], RunOne(model, MixedRequests()[i])) << "request " << i << " of " << sequences;
      }
    }
  }
}

// Decoding goes on while a long prompt is read in chunks.
TEST(Engine, DecodingRowsComeBeforePrompts) {
  FakeBackend backend({});
  Engine engine(backend, {.max_sequences = 2, .step_tokens = 10});
  const SequenceId first = engine.Add(Request({1, 2}, 50));
  engine.Step();
  const SequenceId second = engine.Add(Request(Prompt(30, 1), 5));
  for (int step = 0; step < 3; ++step) {
    const auto updates = engine.Step();
    ASSERT_EQ(updates.size(), 1u);
    EXPECT_EQ(updates[0].id, first);
    EXPECT_EQ(engine.CachedTokens(second), 9 * (step + 1));
  }
  EXPECT_EQ(engine.Step().size(), 2u);
}

TEST(Engine, WaitingSequencesAreTakenInOrderWhenBlocksAreFree) {
  FakeBackend backend({.window = 64});
  Engine engine(backend, {.max_context = 640, .max_sequences = 2, .step_tokens = 64});
  std::vector<SequenceId> started;
  for (int i = 0; i < 6; ++i) engine.Add(Request(Prompt(10, static_cast<uint64_t>(i)), i % 2 ? 600 : 20));
  while (!engine.idle()) {
    for (const SequenceUpdate& update : engine.Step()) {
      if (std::find(started.begin(), started.end(), update.id) == started.end()) started.push_back(update.id);
    }
  }
  EXPECT_THAT(started, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(backend.faults, IsEmpty());
}

struct SpeculationCase {
  const char* name;
  int64_t memory;  // of the model; 1 repeats soon, so that drafts are accepted
  SamplingParams sampling;
  std::vector<int32_t> eos;
};

SamplingParams Sampled(double temperature) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

SamplingParams Penalised(SamplingParams params) {
  params.repetition_penalty = 1.2;
  params.presence_penalty = 0.3;
  params.frequency_penalty = 0.2;
  return params;
}

class EngineSpeculation : public ::testing::TestWithParam<SpeculationCase> {};

TEST_P(EngineSpeculation, GivesTheSameTokens) {
  const SpeculationCase& c = GetParam();
  SpeculationStats all;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const int64_t max_new : {1, 2, 9, 300}) {
      SequenceRequest request = Request(Prompt(60, seed, 6), max_new);
      request.sampling = c.sampling;
      request.sampling.seed = seed;
      request.eos_ids = c.eos;
      const FakeBackend::Options model{.memory = c.memory};
      const Answer plain = RunOne(model, request);
      EXPECT_EQ(plain.stats.drafted, 0);
      request.speculation = Speculation::kNgram;
      const Answer drafted = RunOne(model, request);
      EXPECT_EQ(drafted, plain) << "seed " << seed;
      EXPECT_LE(drafted.stats.steps, plain.stats.steps);
      all.drafted += drafted.stats.drafted;
      all.accepted += drafted.stats.accepted;
    }
  }
  EXPECT_GT(all.drafted, 0);
  EXPECT_LE(all.accepted, all.drafted);
}

INSTANTIATE_TEST_SUITE_P(All, EngineSpeculation,
                         ::testing::Values(SpeculationCase{"Greedy", 1, {}, {}},
                                           SpeculationCase{"GreedyUnpredictable", 1000, {}, {}},
                                           SpeculationCase{"GreedyEos", 2, {}, {3, 4, 5}},
                                           SpeculationCase{"GreedyPenalties", 1, Penalised({}), {}},
                                           SpeculationCase{"Sampled", 1, Sampled(0.3), {}},
                                           SpeculationCase{"SampledEos", 1, Sampled(0.3), {3, 4}},
                                           SpeculationCase{"SampledPenalties", 2, Penalised(Sampled(0.4)), {7}}),
                         [](const auto& test) { return test.param.name; });

TEST(Engine, SpeculationSavesStepsOnARepeatingText) {
  FakeBackend backend({});
  backend.script = [](std::span<const int32_t> text) { return (text.back() + 1) % 10; };
  Engine engine(backend, {});
  SequenceRequest request = Request({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}, 101);
  request.speculation = Speculation::kNgram;
  const SequenceId id = engine.Add(request);
  const Answer answer = RunAll(engine)[id];
  EXPECT_EQ(answer.tokens.size(), 101u);
  EXPECT_LT(answer.stats.steps, 20);
  EXPECT_EQ(answer.stats.drafted, answer.stats.accepted);
}

// The model asks for an eos in the middle of a text that the draft wants to go on with.
TEST(Engine, AnEosInsideADraftEndsTheAnswer) {
  for (const Speculation speculation : {Speculation::kNone, Speculation::kNgram}) {
    FakeBackend backend({});
    backend.script = [](std::span<const int32_t> text) { return text.size() == 45 ? 30 : (text.back() + 1) % 10; };
    Engine engine(backend, {});
    SequenceRequest request = Request({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}, 200);
    request.eos_ids = {30};
    request.speculation = speculation;
    const SequenceId id = engine.Add(request);
    const Answer answer = RunAll(engine)[id];
    EXPECT_EQ(answer.tokens.size(), 33u);
    EXPECT_EQ(answer.finish, FinishReason::kStop);
  }
}

TEST(Engine, CancelledSequencesGiveTheirPlaceBack) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 200});
  const SequenceId running = engine.Add(Request({1, 2}, -1));
  const SequenceId waiting = engine.Add(Request({1, 2}, -1));
  const SequenceId last = engine.Add(Request({5}, 3));
  for (int i = 0; i < 5; ++i) engine.Step();
  engine.Cancel(waiting);
  engine.Cancel(running);
  engine.Cancel(running);
  engine.Cancel(12345);
  const auto answers = RunAll(engine);
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers.at(last).tokens.size(), 3u);
  EXPECT_EQ(engine.CachedTokens(running), 0);
}

TEST(Engine, ABackendErrorDropsTheStepAndTheNextRequestWorks) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 200, .max_sequences = 2});
  bool fail = true;
  backend.on_step = [&fail](const StepBatch&) {
    if (fail) Throw(ErrorKind::kDevice, "layer 3: not finite");
  };
  engine.Add(Request({1, 2}, 5));
  engine.Add(Request({1, 2}, 5));
  const SequenceId third = engine.Add(Request({7}, 4));
  EXPECT_THROW(engine.Step(), Error);
  fail = false;
  const auto answers = RunAll(engine);
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers.at(third), RunOne({}, Request({7}, 4)));
}

TEST(Engine, OnlyStepsThatAreAllPlainGreedyLeaveTheLogitsInTheBackend) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 200, .max_sequences = 2});
  const SequenceId greedy = engine.Add(Request(Prompt(9, 1), 20));
  SequenceRequest sampled = Request(Prompt(9, 2), 5);
  sampled.sampling.temperature = 0.5;
  const SequenceId other = engine.Add(sampled);
  const auto answers = RunAll(engine);
  EXPECT_EQ(backend.steps, 20);
  EXPECT_EQ(backend.greedy_steps, 15);
  EXPECT_EQ(answers.at(greedy), RunOne({}, Request(Prompt(9, 1), 20)));
  EXPECT_EQ(answers.at(other), RunOne({}, sampled));
}

void Append(std::vector<TokenLogprobs>& to, std::span<const TokenLogprobs> from) {
  to.insert(to.end(), from.begin(), from.end());
}

struct Scores {
  Answer answer;
  std::vector<TokenLogprobs> prompt, tokens;
};

Scores Score(const SequenceRequest& request, const EngineOptions& options = {}) {
  FakeBackend backend({.memory = 3});
  Engine engine(backend, options);
  engine.Add(request);
  Scores scores;
  while (!engine.idle()) {
    for (const SequenceUpdate& update : engine.Step()) {
      EXPECT_EQ(update.logprobs.size(), request.top_logprobs < 0 ? 0 : update.tokens.size());
      scores.answer.tokens.insert(scores.answer.tokens.end(), update.tokens.begin(), update.tokens.end());
      scores.answer.finish = update.finish;
      Append(scores.tokens, update.logprobs);
      Append(scores.prompt, update.prompt_logprobs);
    }
  }
  EXPECT_THAT(backend.faults, IsEmpty());
  return scores;
}

void ExpectSame(std::span<const TokenLogprobs> a, std::span<const TokenLogprobs> b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].logprob, b[i].logprob) << i;
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (size_t j = 0; j < a[i].top.size(); ++j) {
      EXPECT_EQ(a[i].top[j].id, b[i].top[j].id);
      EXPECT_EQ(a[i].top[j].logprob, b[i].top[j].logprob);
    }
  }
}

TEST(Engine, LogprobsAreOfTheModelsOwnLogits) {
  SequenceRequest request = Request(Prompt(30, 4), 40);
  request.top_logprobs = 3;
  const Scores greedy = Score(request);
  EXPECT_EQ(greedy.answer, RunOne({.memory = 3}, Request(Prompt(30, 4), 40)));
  ASSERT_EQ(greedy.tokens.size(), 40u);
  EXPECT_THAT(greedy.prompt, IsEmpty());
  for (size_t i = 0; i < 40; ++i) {
    ASSERT_EQ(greedy.tokens[i].top.size(), 3u);
    EXPECT_EQ(greedy.tokens[i].top[0].id, greedy.answer.tokens[i]);
    EXPECT_EQ(greedy.tokens[i].top[0].logprob, greedy.tokens[i].logprob);
  }
  // Another way to sample changes which tokens come, not how likely the first of them is.
  request.sampling.logit_bias = {{greedy.answer.tokens[0], 100.0}};
  request.sampling.temperature = 0.1;
  const Scores biased = Score(request);
  EXPECT_EQ(biased.tokens[0].logprob, greedy.tokens[0].logprob);
  request.sampling = {};
  request.speculation = Speculation::kNgram;
  ExpectSame(Score(request).tokens, greedy.tokens);
}

TEST(Engine, PromptLogprobsAreThoseOfAnAnswer) {
  // The greedy answer of a prompt, scored as part of a longer prompt.
  SequenceRequest request = Request(Prompt(30, 4), 60);
  request.top_logprobs = 2;
  const Scores answer = Score(request);
  std::vector<int32_t> whole = request.prompt;
  whole.insert(whole.end(), answer.answer.tokens.begin(), answer.answer.tokens.end());
  SequenceRequest scoring = Request(whole, 0);
  scoring.top_logprobs = 2;
  scoring.prompt_logprobs = true;
  for (const int64_t step : {1, 7, 50, 500}) {
    const Scores scored = Score(scoring, {.step_tokens = step});
    EXPECT_EQ(scored.answer.finish, FinishReason::kLength);
    EXPECT_THAT(scored.answer.tokens, IsEmpty());
    ASSERT_EQ(scored.prompt.size(), 89u);
    ExpectSame(std::span(scored.prompt).subspan(29), answer.tokens);
  }
  scoring.top_logprobs = -1;
  scoring.max_new_tokens = 3;
  const Scores more = Score(scoring);
  EXPECT_EQ(more.answer, RunOne({.memory = 3}, Request(whole, 3)));
  EXPECT_EQ(more.prompt.size(), 89u);
  EXPECT_THAT(more.prompt[0].top, IsEmpty());
  scoring.prompt = {5};
  scoring.max_new_tokens = 0;
  EXPECT_THAT(Score(scoring).prompt, IsEmpty());
}

TEST(Engine, CountsWhatItDoes) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 500, .max_sequences = 2, .prefix_cache = false});
  for (int i = 0; i < 3; ++i) engine.Add(Request(Prompt(70, 1 + static_cast<uint64_t>(i)), 10));
  engine.Step();
  EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.running, 2);
  EXPECT_EQ(counters.waiting, 1);
  EXPECT_EQ(counters.used_blocks[1], 4);
  EXPECT_EQ(counters.total_blocks[1], 16);
  EXPECT_EQ(counters.prompt_tokens, 140);
  RunAll(engine);
  counters = engine.counters();
  EXPECT_EQ(counters.running + counters.waiting, 0);
  EXPECT_EQ(counters.used_blocks[0] + counters.used_blocks[1], 0);
  EXPECT_EQ(counters.prompt_tokens, 210);
  EXPECT_EQ(counters.decode_tokens, 30);
  EXPECT_EQ(counters.speculation.steps, 27);
}

TEST(Engine, TheContextIsCutToTheCache) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 1000, .max_sequences = 4, .cache_tokens = 300});
  EXPECT_EQ(engine.options().max_context, 300);
  EXPECT_EQ(engine.counters().total_blocks[1], 5);
  const SequenceId id = engine.Add(Request(Prompt(290, 1), -1));
  EXPECT_EQ(RunAll(engine)[id].tokens.size(), 10u);
}

void ExpectRefused(Engine& engine, const SequenceRequest& request, const std::string& part) {
  try {
    engine.Add(request);
    ADD_FAILURE() << "accepted, wanted an error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Engine, RefusesRequestsThatCannotRun) {
  FakeBackend backend({});
  Engine engine(backend, {.max_context = 100});
  ExpectRefused(engine, Request({}, 5), "no tokens");
  ExpectRefused(engine, Request({1, 40}, 5), "40");
  ExpectRefused(engine, Request({1, -1}, 5), "-1");
  ExpectRefused(engine, Request(Prompt(100, 1), 5), "found 100 tokens, wanted fewer than the context of 100");
  ExpectRefused(engine, Request({1}, 0), "found 0");
  ExpectRefused(engine, Request({1}, -2), "found -2");
  SequenceRequest request = Request({1}, 5);
  request.sampling.top_p = 0;
  ExpectRefused(engine, request, "top_p");
  request = Request({1}, 5);
  request.top_logprobs = 21;
  ExpectRefused(engine, request, "found 21");
  request.top_logprobs = -2;
  ExpectRefused(engine, request, "found -2");
  EXPECT_TRUE(engine.idle());
  EXPECT_THAT(engine.Step(), IsEmpty());
}

TEST(Engine, RefusesOptionsThatCannotWork) {
  for (const EngineOptions& options :
       {EngineOptions{.max_context = 2001}, EngineOptions{.max_context = 1}, EngineOptions{.max_context = -5},
        EngineOptions{.max_sequences = 0}, EngineOptions{.cache_tokens = -1}, EngineOptions{.step_tokens = 0}}) {
    FakeBackend backend({});
    EXPECT_THROW(Engine(backend, options), Error);
  }
}

// A backend that chooses tokens itself is told all that the choice depends on, and the answers stay the same.
TEST(Engine, TokensChosenByTheBackendAreThoseOfTheHost) {
  std::vector<std::map<SequenceId, Answer>> answers;
  for (const bool samples : {false, true}) {
    FakeBackend backend({.samples = samples});
    Engine engine(backend, {.max_context = 300, .max_sequences = 4, .step_tokens = 64});
    for (uint64_t s = 0; s < 6; ++s) {
      SequenceRequest request = Request(Prompt(20 + static_cast<int64_t>(s) * 9, s), 40);
      request.sampling.temperature = s == 0 ? 0 : 0.9;
      request.sampling.seed = s;
      if (s == 1) request.sampling.top_k = 5;
      if (s == 2) request.sampling.repetition_penalty = 1.3;
      if (s == 3) request.sampling.frequency_penalty = 0.4;
      if (s == 4) request.sampling.logit_bias = {{3, 2.0}, {7, -1.0}};
      if (s == 5) request.sampling.suppress_tokens = {1, 2, 3};
      request.speculation = s % 2 == 1 ? Speculation::kNgram : Speculation::kNone;
      engine.Add(std::move(request));
    }
    answers.push_back(RunAll(engine));
    EXPECT_THAT(backend.faults, testing::IsEmpty());
    EXPECT_EQ(backend.sampled_steps > 20, samples) << backend.sampled_steps << " of " << backend.steps;
  }
  EXPECT_EQ(answers[0], answers[1]);
}

// Logprobs need logits.
TEST(Engine, LogprobsAreNotForTheBackendToChooseBy) {
  FakeBackend backend({.samples = true});
  Engine engine(backend, {.max_context = 100});
  SequenceRequest request = Request(Prompt(10, 1), 5);
  request.sampling.temperature = 1;
  request.top_logprobs = 2;
  engine.Add(std::move(request));
  RunAll(engine);
  EXPECT_EQ(backend.sampled_steps, 0);
  EXPECT_GT(backend.steps, 0);
}

}  // namespace
}  // namespace lapidary
