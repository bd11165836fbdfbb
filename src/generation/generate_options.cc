#include "generation/generate_options.h"

#include <random>

namespace lapidary {
namespace {

uint64_t FreshSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

double ResolveTemperature(const GenerateOptions& options, const GenerationConfig& defaults) {
  if (options.temperature) return *options.temperature;
  if (!defaults.do_sample.value_or(true)) return 0;
  return defaults.temperature.value_or(defaults.do_sample ? 1.0 : 0.0);
}

}  // namespace

SamplingParams ResolveSampling(const GenerateOptions& options, const GenerationConfig& defaults, int64_t vocab) {
  SamplingParams params;
  params.temperature = ResolveTemperature(options, defaults);
  params.top_k = options.top_k ? *options.top_k : defaults.top_k.value_or(params.top_k);
  params.top_p = options.top_p ? *options.top_p : defaults.top_p.value_or(params.top_p);
  params.min_p = options.min_p ? *options.min_p : defaults.min_p.value_or(params.min_p);
  params.repetition_penalty = options.repetition_penalty
                                  ? *options.repetition_penalty
                                  : defaults.repetition_penalty.value_or(params.repetition_penalty);
  params.presence_penalty = options.presence_penalty;
  params.frequency_penalty = options.frequency_penalty;
  params.logit_bias = options.logit_bias;
  for (const int32_t id : defaults.suppress_tokens) {
    if (id >= 0 && id < vocab) params.suppress_tokens.push_back(id);
  }
  params.seed = options.seed ? *options.seed : FreshSeed();
  return params;
}

}  // namespace lapidary
