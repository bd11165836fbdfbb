#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "fake_backend.h"

namespace lapidary {

struct Answer {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kNone;
  SpeculationStats stats;
  bool operator==(const Answer& other) const { return tokens == other.tokens && finish == other.finish; }
};

inline std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  return out << ::testing::PrintToString(answer.tokens) << " finish " << static_cast<int>(answer.finish);
}

// Runs until idle.
inline std::map<SequenceId, Answer> RunAll(Engine& engine) {
  std::map<SequenceId, Answer> answers;
  for (int step = 0; !engine.idle(); ++step) {
    if (step > 100000) throw std::runtime_error("the engine does not come to an end");
    for (const SequenceUpdate& update : engine.Step()) {
      Answer& answer = answers[update.id];
      answer.tokens.insert(answer.tokens.end(), update.tokens.begin(), update.tokens.end());
      answer.finish = update.finish;
      answer.stats = engine.Stats(update.id);
    }
  }
  return answers;
}

inline Answer RunOne(const FakeBackend::Options& model, SequenceRequest request, EngineOptions options = {}) {
  FakeBackend backend(model);
  Engine engine(backend, options);
  const SequenceId id = engine.Add(std::move(request));
  Answer answer = RunAll(engine)[id];
  EXPECT_THAT(backend.faults, ::testing::IsEmpty());
  return answer;
}

inline std::vector<int32_t> Prompt(int64_t length, uint64_t seed, int64_t vocab = 40) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<int32_t>(UniformDraw(seed, static_cast<uint64_t>(i)) * static_cast<double>(vocab)));
  }
  return prompt;
}

inline SequenceRequest Request(std::vector<int32_t> prompt, int64_t max_new_tokens) {
  SequenceRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  return request;
}

}  // namespace lapidary
