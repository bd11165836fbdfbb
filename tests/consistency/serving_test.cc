// What a request gives, ids and logprobs to the last bit, must not depend on who else is served, on what the cache
// holds, or on whether it had to give way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "testing/model_runner.h"

namespace lapidary {
namespace {

using Ids = std::vector<int32_t>;
using testing::ElementsAre;

struct Served {
  Ids ids;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::kNone;
  int64_t cached = 0;

  bool operator==(const Served& other) const {
    return ids == other.ids && finish == other.finish && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) == 0;
  }
};

std::ostream& operator<<(std::ostream& out, const Served& served) {
  return out << testing::PrintToString(served.ids) << " logprobs " << testing::PrintToString(served.logprobs);
}

Ids ArbitraryPrompt(int64_t vocab, int64_t length, uint64_t seed) {
  Ids ids = {2};
  while (static_cast<int64_t>(ids.size()) < length) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>(10 + (seed >> 33) % static_cast<uint64_t>(vocab - 10)));
  }
  return ids;
}

std::vector<Served> ServeAll(Engine& engine, const std::vector<SequenceRequest>& requests) {
  std::vector<Served> all(requests.size());
  std::map<SequenceId, size_t> places;
  for (size_t i = 0; i < requests.size(); ++i) places[engine.Add(requests[i])] = i;
  while (!engine.idle()) {
    for (const SequenceUpdate& update : engine.Step()) {
      Served& served = all[places.at(update.id)];
      served.ids.insert(served.ids.end(), update.tokens.begin(), update.tokens.end());
      for (const TokenLogprobs& each : update.logprobs) served.logprobs.push_back(each.logprob);
      served.finish = update.finish;
      served.cached = update.cached_prompt_tokens;
    }
  }
  EXPECT_THAT(engine.counters().used_blocks, ElementsAre(0, 0));
  return all;
}

class ServingTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  std::string folder() const {
    const std::string& name = std::get<0>(GetParam());
    return name == "demo" ? LAPIDARY_SOURCE_DIR "/models/demo" : TestData(name);
  }

  SequenceRequest Request(int64_t length, uint64_t seed, int64_t answer) const {
    SequenceRequest request;
    request.prompt = ArbitraryPrompt(backend_->plan().vocab(), length, seed);
    request.max_new_tokens = answer;
    request.top_logprobs = 0;
    request.sampling.seed = seed;
    if (seed % 2) request.sampling.temperature = 0.9;
    if (seed % 3 == 0) request.speculation = Speculation::kNgram;
    return request;
  }

  // Of requests that begin alike in part.
  std::vector<SequenceRequest> Crowd() const {
    std::vector<SequenceRequest> requests;
    for (uint64_t i = 0; i < 6; ++i) {
      requests.push_back(Request(100 + 20 * static_cast<int64_t>(i), i / 2, 30));
      requests.back().prompt.push_back(static_cast<int32_t>(10 + i));
    }
    return requests;
  }

  std::vector<Served> EachAlone(const std::vector<SequenceRequest>& requests) {
    std::vector<Served> all;
    for (const SequenceRequest& request : requests) {
      Engine engine(*backend_, {.max_context = 1024, .kv_type = kv_type(), .prefix_cache = false});
      all.push_back(ServeAll(engine, {request})[0]);
      EXPECT_EQ(all.back().logprobs.size(), all.back().ids.size());
    }
    return all;
  }

  DType kv_type() const { return std::get<1>(GetParam()); }

  std::unique_ptr<Backend> backend_ = LoadCpuBackend(folder(), {1}, {});
};

TEST_P(ServingTest, AloneAndInACrowd) {
  const std::vector<Served> alone = EachAlone(Crowd());
  Engine engine(*backend_, {.max_context = 1024, .max_sequences = 6, .step_tokens = 100, .kv_type = kv_type()});
  EXPECT_EQ(ServeAll(engine, Crowd()), alone);
  // Now everything comes from the cache but the last token of each.
  const std::vector<Served> again = ServeAll(engine, Crowd());
  EXPECT_EQ(again, alone);
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].cached, static_cast<int64_t>(Crowd()[i].prompt.size()) - 1);
  }
}

TEST_P(ServingTest, AfterGivingWay) {
  std::vector<SequenceRequest> requests;
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(Request(70, 10 + i, 170));
  const std::vector<Served> alone = EachAlone(requests);
  for (const bool prefix_cache : {false, true}) {
    Engine engine(*backend_, {.max_context = 384,
                              .max_sequences = 3,
                              .step_tokens = 50,
                              .kv_type = kv_type(),
                              .cache_tokens = 384,
                              .prefix_cache = prefix_cache});
    EXPECT_EQ(ServeAll(engine, requests), alone);
    EXPECT_GT(engine.counters().preemptions, 0);
  }
}

// Field report 22: cold, warm, and parting before, at and behind the window.
TEST_P(ServingTest, FieldReport22ColdAndWarm) {
  constexpr int64_t kLength = 600;
  std::vector<SequenceRequest> requests = {Request(kLength, 4, 12), Request(kLength, 4, 12)};
  std::vector<int64_t> cached = {0, kLength - 1};
  for (const size_t place : {50, 300, 550}) {
    requests.push_back(requests[0]);
    int32_t& id = requests.back().prompt[place];
    id = id == 11 ? 12 : 11;
    cached.push_back(static_cast<int64_t>(place));
  }
  const std::vector<Served> alone = EachAlone(requests);
  Engine engine(*backend_, {.max_context = 1024, .kv_type = kv_type(), .cache_tokens = 8000});
  for (size_t i = 0; i < requests.size(); ++i) {
    const Served served = ServeAll(engine, {requests[i]})[0];
    EXPECT_EQ(served, alone[i]) << i;
    EXPECT_EQ(served.cached, cached[i]);
  }
}

// Of the second turn only what is new is computed, and the last token of the answer, which nobody has run.
TEST_P(ServingTest, TheSecondTurnOfALongChat) {
  const bool demo = std::get<0>(GetParam()) == "demo";
  SequenceRequest first = Request(demo ? 3900 : 600, 5, 40);
  const EngineOptions options{.kv_type = kv_type(), .prefix_cache = false};
  Served answer;
  {
    Engine engine(*backend_, options);
    answer = ServeAll(engine, {first})[0];
  }
  ASSERT_EQ(answer.ids.size(), 40u);
  SequenceRequest second = first;
  second.prompt.insert(second.prompt.end(), answer.ids.begin(), answer.ids.end());
  const auto known = static_cast<int64_t>(second.prompt.size()) - 1;
  const Ids added = ArbitraryPrompt(backend_->plan().vocab(), 60, 6);
  second.prompt.insert(second.prompt.end(), added.begin(), added.end());
  Served alone;
  {
    Engine engine(*backend_, options);
    alone = ServeAll(engine, {second})[0];
  }
  Engine engine(*backend_, {.kv_type = kv_type()});
  EXPECT_EQ(ServeAll(engine, {first})[0], answer);
  const int64_t before = engine.counters().prompt_tokens;
  const Served served = ServeAll(engine, {second})[0];
  EXPECT_EQ(served, alone);
  EXPECT_EQ(served.cached, known);
  EXPECT_EQ(engine.counters().prompt_tokens - before, 61);
}

// The best ids alone are those of the logits.
TEST_P(ServingTest, GreedyWithoutLogits) {
  std::vector<SequenceRequest> requests;
  for (uint64_t i = 0; i < 3; ++i) requests.push_back(Request(40, 2 * i, 30));
  const std::vector<Served> with_logits = EachAlone(requests);
  for (SequenceRequest& request : requests) request.top_logprobs = -1;
  Engine engine(*backend_, {.max_context = 256, .max_sequences = 3, .kv_type = kv_type()});
  const std::vector<Served> without = ServeAll(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(without[i].ids, with_logits[i].ids);
}

using Param = std::tuple<std::string, DType>;
INSTANTIATE_TEST_SUITE_P(, ServingTest,
                         testing::Values(Param("demo", DType::kF32), Param("e2b-mini", DType::kBF16),
                                         Param("dense-mini", DType::kF32), Param("moe-mini", DType::kBF16)),
                         [](const auto& param) {
                           const std::string& shape = std::get<0>(param.param);
                           return shape.substr(0, shape.find('-')) + "_" +
                                  std::string(NameOf(std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace lapidary
