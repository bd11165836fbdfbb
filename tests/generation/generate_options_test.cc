#include "generation/generate_options.h"

#include <gtest/gtest.h>

namespace lapidary {
namespace {

TEST(ResolveSampling, RequestThenModelThenGreedy) {
  GenerationConfig defaults;
  EXPECT_EQ(ResolveSampling({}, defaults, 10).temperature, 0);
  defaults.temperature = 0.6;
  defaults.top_k = 64;
  defaults.top_p = 0.95;
  defaults.min_p = 0.01;
  defaults.repetition_penalty = 1.1;
  SamplingParams params = ResolveSampling({}, defaults, 10);
  EXPECT_EQ(params.temperature, 0.6);
  EXPECT_EQ(params.top_k, 64);
  EXPECT_EQ(params.top_p, 0.95);
  EXPECT_EQ(params.min_p, 0.01);
  EXPECT_EQ(params.repetition_penalty, 1.1);
  defaults.do_sample = false;
  EXPECT_EQ(ResolveSampling({}, defaults, 10).temperature, 0);
  EXPECT_EQ(ResolveSampling({.temperature = 0.3}, defaults, 10).temperature, 0.3);
  defaults.do_sample = true;
  defaults.temperature.reset();
  EXPECT_EQ(ResolveSampling({}, defaults, 10).temperature, 1.0);
  params = ResolveSampling(
      {.temperature = 0.0, .top_p = 0.5, .min_p = 0.2, .repetition_penalty = 1.0, .top_k = 3, .seed = 9}, defaults, 10);
  EXPECT_EQ(params.temperature, 0);
  EXPECT_EQ(params.top_k, 3);
  EXPECT_EQ(params.top_p, 0.5);
  EXPECT_EQ(params.min_p, 0.2);
  EXPECT_EQ(params.repetition_penalty, 1.0);
  EXPECT_EQ(params.seed, 9u);
  EXPECT_NE(ResolveSampling({}, defaults, 10).seed, ResolveSampling({}, defaults, 10).seed);
}

}  // namespace
}  // namespace lapidary
