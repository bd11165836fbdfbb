#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int32_t ChooseOnce(const SamplingParams& params, std::vector<float> logits, std::vector<int32_t> prompt = {},
                   std::vector<int32_t> answer = {}) {
  Sampler sampler(params, prompt, static_cast<int64_t>(logits.size()));
  for (const int32_t token : answer) sampler.Accept(token);
  return sampler.Choose(logits);
}

// Pseudo-random logits in [-scale, scale).
std::vector<float> RandomLogits(size_t vocab, uint64_t seed, double scale) {
  std::vector<float> logits(vocab);
  for (size_t i = 0; i < vocab; ++i) logits[i] = static_cast<float>((2 * UniformDraw(seed, i) - 1) * scale);
  return logits;
}

// What may be drawn and how likely, written down as plainly as possible: sort all, cut, renormalise.
std::map<int32_t, double> PlainDistribution(const SamplingParams& p, const std::vector<float>& logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(p.top_k)));
  std::vector<double> weight;
  for (const int32_t id : order) weight.push_back(std::exp((logit(id) - logit(order[0])) / p.temperature));
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  size_t kept = 0;
  for (double sum = 0; kept < order.size() && sum < p.top_p * total; ++kept) sum += weight[kept];
  std::map<int32_t, double> result;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    if (weight[i] < p.min_p) continue;
    result[order[i]] = weight[i];
    sum += weight[i];
  }
  for (auto& [id, probability] : result) probability /= sum;
  return result;
}

TEST(Argmax, FindsTheLargestAtEveryPlaceAndLength) {
  for (const size_t size : {1u, 15u, 16u, 17u, 4095u, 4096u, 4097u, 9001u}) {
    for (const size_t place : {size_t{0}, size / 2, size - 1}) {
      std::vector<float> logits(size, -3.0f);
      logits[place] = -1.0f;
      EXPECT_EQ(Argmax(logits), static_cast<int32_t>(place)) << size;
    }
  }
}

TEST(Argmax, TiesGoToTheLowerIdAndNanIsPassedOver) {
  std::vector<float> logits(9000, 0.0f);
  logits[7] = logits[20] = logits[5000] = 2.0f;
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Argmax(logits), 7);
}

TEST(Sampler, GreedyTakesTheBest) { EXPECT_EQ(ChooseOnce({}, {0.1f, 3.0f, 2.0f, 3.0f}), 1); }

TEST(Sampler, SuppressedTokensAreNeverChosen) {
  SamplingParams params;
  params.suppress_tokens = {1};
  params.logit_bias = {{1, 1000.0}};
  EXPECT_EQ(ChooseOnce(params, {0.1f, 3.0f, 2.0f}), 2);
  params.temperature = 100;
  for (params.seed = 0; params.seed < 200; ++params.seed) EXPECT_NE(ChooseOnce(params, {0.1f, 3.0f, 2.0f}), 1);
}

TEST(Sampler, LogitBiasIsAdded) {
  SamplingParams params;
  params.logit_bias = {{0, 2.0}, {2, -5.0}};
  EXPECT_EQ(ChooseOnce(params, {2.0f, 3.0f, 6.0f}), 0);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogitsOfPromptAndAnswer) {
  SamplingParams params;
  params.repetition_penalty = 2;
  std::vector<float> logits = {4.0f, -1.0f, 3.0f, -1.5f};
  Sampler sampler(params, std::vector<int32_t>{0, 0, 1}, 4);
  sampler.Accept(2);
  sampler.Choose(logits);
  EXPECT_THAT(logits, ElementsAre(2.0f, -2.0f, 1.5f, -1.5f));
}

TEST(Sampler, PresenceAndFrequencyPenaltiesCountTheAnswerOnly) {
  SamplingParams params;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  std::vector<float> logits = {1.0f, 1.0f, 1.0f};
  Sampler sampler(params, std::vector<int32_t>{0, 0, 0}, 3);
  for (const int32_t token : {1, 1, 2}) sampler.Accept(token);
  sampler.Choose(logits);
  EXPECT_THAT(logits, ElementsAre(1.0f, 0.0f, 0.25f));
  EXPECT_EQ(sampler.accepted(), 3);
}

TEST(Sampler, TopKOfOneIsGreedyWithTiesToTheLowerId) {
  SamplingParams params;
  params.temperature = 50;
  params.top_k = 1;
  std::vector<float> logits = RandomLogits(5000, 1, 0.5);
  logits[4000] = logits[1500] = logits[4999] = 1.0f;
  for (params.seed = 0; params.seed < 50; ++params.seed) EXPECT_EQ(ChooseOnce(params, logits), 1500);
}

// Ties at the border of top-k: the lower ids are kept, also when candidates are compacted on the way.
TEST(Sampler, TopKKeepsTheLowerOfEqualIds) {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 100;
  const std::vector<float> logits(20000, 1.0f);
  for (params.seed = 0; params.seed < 500; ++params.seed) EXPECT_LT(ChooseOnce(params, logits), 100);
}

struct Case {
  const char* name;
  SamplingParams params;
  size_t vocab;
  double scale;
};

SamplingParams Params(double temperature, int64_t top_k, double top_p, double min_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  return params;
}

class SamplerDistribution : public ::testing::TestWithParam<Case> {};

// Chi-square of 20,000 draws with fixed seeds against the plain distribution; cells expected under 8 times are pooled.
// The bound is the mean plus five standard deviations of chi-square.
TEST_P(SamplerDistribution, MatchesThePlainOne) {
  const Case& c = GetParam();
  const std::vector<float> logits = RandomLogits(c.vocab, 42, c.scale);
  const std::map<int32_t, double> expected = PlainDistribution(c.params, logits);
  constexpr int kDraws = 20000;
  std::map<int32_t, int> drawn;
  SamplingParams params = c.params;
  params.seed = 7;
  Sampler sampler(params, {}, static_cast<int64_t>(c.vocab));
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> copy = logits;
    const int32_t token = sampler.Choose(copy);
    sampler.Accept(token);
    ASSERT_TRUE(expected.contains(token)) << token;
    ++drawn[token];
  }
  double chi = 0, rest_expected = 0, rest_drawn = 0;
  int cells = 0;
  const auto add = [&](double wanted, double found) {
    chi += (found - wanted) * (found - wanted) / wanted;
    ++cells;
  };
  for (const auto& [id, probability] : expected) {
    const double wanted = probability * kDraws;
    if (wanted >= 8) {
      add(wanted, drawn[id]);
    } else {
      rest_expected += wanted;
      rest_drawn += drawn[id];
    }
  }
  if (rest_expected >= 8) add(rest_expected, rest_drawn);
  EXPECT_LT(chi, cells + 5 * std::sqrt(2.0 * cells));
}

INSTANTIATE_TEST_SUITE_P(
    All, SamplerDistribution,
    ::testing::Values(Case{"Plain", Params(1, 0, 1, 0), 200, 3}, Case{"Hot", Params(3, 0, 1, 0), 50, 3},
                      Case{"TopK", Params(1, 20, 1, 0), 300, 3}, Case{"TopKBeyondVocab", Params(1, 5000, 1, 0), 30, 2},
                      Case{"TopP", Params(1, 0, 0.8, 0), 300, 4}, Case{"TopPFlat", Params(8, 0, 0.95, 0), 400, 1},
                      Case{"TopKTopP", Params(0.8, 40, 0.9, 0), 300, 4}, Case{"MinP", Params(1, 0, 1, 0.1), 300, 4},
                      Case{"AllCuts", Params(1.3, 64, 0.95, 0.05), 500, 4}),
    [](const auto& test) { return test.param.name; });

// The set kept by top-p at the real vocabulary's size equals the plain one.
TEST(Sampler, TopPAtFullVocabularyKeepsThePlainSet) {
  const std::vector<float> logits = RandomLogits(262144, 3, 15);
  for (const SamplingParams& params : {Params(1, 0, 0.9, 0), Params(2.5, 0, 0.99, 0), Params(1, 64, 0.95, 0)}) {
    const std::map<int32_t, double> expected = PlainDistribution(params, logits);
    Sampler sampler(params, {}, 262144);
    for (int i = 0; i < 40; ++i) {
      std::vector<float> copy = logits;
      const int32_t token = sampler.Choose(copy);
      sampler.Accept(token);
      EXPECT_TRUE(expected.contains(token)) << token;
    }
  }
}

// A draft verified by choosing at each of its positions takes the same tokens as choosing one at a time, as the draw
// depends on the number of accepted tokens alone.
TEST(Sampler, DrawDependsOnSeedAndPositionAlone) {
  SamplingParams params = Params(1, 0, 1, 0);
  params.seed = 5;
  const std::vector<float> logits = RandomLogits(100, 9, 1);
  std::vector<int32_t> first, again;
  Sampler one(params, {}, 100), two(params, {}, 100);
  for (int i = 0; i < 50; ++i) {
    std::vector<float> copy = logits;
    first.push_back(one.Choose(copy));
    one.Accept(first.back());
    copy = logits;
    two.Choose(copy);  // a choice that is not accepted leaves no trace
    copy = logits;
    again.push_back(two.Choose(copy));
    two.Accept(again.back());
  }
  EXPECT_EQ(first, again);
  params.seed = 6;
  Sampler other(params, {}, 100);
  std::vector<int32_t> different;
  for (int i = 0; i < 50; ++i) {
    std::vector<float> copy = logits;
    different.push_back(other.Choose(copy));
    other.Accept(different.back());
  }
  EXPECT_NE(first, different);
}

TEST(Sampler, TinyTemperatureIsFiniteAndGreedy) {
  EXPECT_EQ(ChooseOnce(Params(1e-300, 0, 1, 0), {0.0f, 5.0f, 4.9f}), 1);
  EXPECT_EQ(ChooseOnce(Params(1e-300, 2, 0.5, 0.5), {0.0f, 5.0f, 4.9f}), 1);
}

TEST(UniformDraw, IsUniformInUnitInterval) {
  constexpr int kCells = 64, kDraws = 64000;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    std::vector<int> cells(kCells);
    for (int i = 0; i < kDraws; ++i) {
      const double u = UniformDraw(seed, static_cast<uint64_t>(i));
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++cells[static_cast<size_t>(u * kCells)];
    }
    double chi = 0;
    for (const int count : cells) chi += std::pow(count - kDraws / kCells, 2) / (kDraws / kCells);
    EXPECT_LT(chi, kCells + 5 * std::sqrt(2.0 * kCells));
  }
  EXPECT_NE(UniformDraw(0, 1), UniformDraw(1, 0));
}

void ExpectRefused(const SamplingParams& params, const std::string& field) {
  try {
    CheckSamplingParams(params, 10);
    ADD_FAILURE() << field << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(field));
  }
}

TEST(CheckSamplingParams, RefusesEveryFieldOutOfItsRange) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, kNan, kInf}) ExpectRefused(Params(bad, 0, 1, 0), "temperature");
  ExpectRefused(Params(1, -1, 1, 0), "top_k");
  for (const double bad : {0.0, 1.5, -0.1, kNan}) ExpectRefused(Params(1, 0, bad, 0), "top_p");
  for (const double bad : {-0.1, 1.1, kNan}) ExpectRefused(Params(1, 0, 1, bad), "min_p");
  for (const double bad : {0.0, -1.0, kInf}) {
    SamplingParams params;
    params.repetition_penalty = bad;
    ExpectRefused(params, "repetition_penalty");
  }
  SamplingParams params;
  params.presence_penalty = kNan;
  ExpectRefused(params, "presence_penalty");
  params = {};
  params.frequency_penalty = kInf;
  ExpectRefused(params, "frequency_penalty");
  params = {};
  params.logit_bias = {{10, 1.0}};
  ExpectRefused(params, "logit_bias");
  params.logit_bias = {{-1, 1.0}};
  ExpectRefused(params, "logit_bias");
  params.logit_bias = {{1, kNan}};
  ExpectRefused(params, "logit_bias");
  params = {};
  params.suppress_tokens = {10};
  ExpectRefused(params, "suppress_tokens");
  params.suppress_tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0};
  ExpectRefused(params, "suppress_tokens");
}

}  // namespace
}  // namespace lapidary
