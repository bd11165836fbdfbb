#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "engine/drafter.h"
#include "sampling/sampler.h"

namespace lapidary {
namespace {

constexpr int64_t kVocab = 262144;

// Normal logits of standard deviation 3 around -8, as a model's look after its softcap, and a few likely tokens.
std::vector<float> Logits() {
  std::vector<float> logits(kVocab);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double u = 1 - UniformDraw(1, i), v = UniformDraw(2, i);
    logits[i] = static_cast<float>(-8 + 3 * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  for (size_t i = 0; i < 20; ++i) logits[i * 9973] = static_cast<float>(14 - 0.4 * static_cast<double>(i));
  return logits;
}

// Bytes are those of one pass over the logits.
void Choose(benchmark::State& state, const SamplingParams& params) {
  const std::vector<float> source = Logits();
  std::vector<float> logits = source;
  Sampler sampler(params, {}, kVocab);
  for (auto _ : state) {
    logits[0] = source[0];
    const int32_t token = sampler.Choose(logits);
    sampler.Accept(token);
    benchmark::DoNotOptimize(token);
  }
  state.SetBytesProcessed(state.iterations() * kVocab * static_cast<int64_t>(sizeof(float)));
}

SamplingParams Params(double temperature, int64_t top_k, double top_p, double min_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  return params;
}

BENCHMARK_CAPTURE(Choose, Greedy, Params(0, 0, 1, 0))->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Choose, Temperature, Params(1, 0, 1, 0))->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Choose, TopK64TopP095, Params(1, 64, 0.95, 0))->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Choose, TopP095, Params(1, 0, 0.95, 0))->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Choose, TopP095Hot, Params(4, 0, 0.95, 0))->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Choose, MinP005, Params(1, 0, 1, 0.05))->Unit(benchmark::kMicrosecond);

// One token taken in and one draft asked for, in a text of `range` tokens.
void Draft(benchmark::State& state) {
  NgramDrafter drafter;
  std::vector<int32_t> text(static_cast<size_t>(state.range(0)));
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(UniformDraw(3, i) * 200);
  drafter.Append(text);
  size_t next = 0;
  for (auto _ : state) {
    drafter.Append(std::span(text).subspan(next++ % text.size(), 1));
    benchmark::DoNotOptimize(drafter.Propose(7));
  }
}
BENCHMARK(Draft)->Arg(1000)->Arg(100000);

}  // namespace
}  // namespace lapidary
