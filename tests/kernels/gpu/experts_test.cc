#include "kernels/gpu/experts.h"

#include <gmock/gmock.h>

#include <numeric>

#include "base/error.h"
#include "device_rows.h"
#include "kernels/gpu/expert_parts.h"
#include "kernels/reference/reference.h"

namespace lapidary::gpu::testing {
namespace {

struct Choice {
  size_t expert;
  double weight;
};

// A row's choices from its scores.
std::vector<Choice> Choose(const std::vector<double>& scores, int top_k, const std::vector<float>& scale) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(size_t(top_k));
  double sum = 0;
  for (size_t e : order) sum += std::exp(scores[e] - scores[order[0]]);
  std::vector<Choice> choices;
  for (size_t e : order) choices.push_back({e, std::exp(scores[e] - scores[order[0]]) / sum * double{scale[e]}});
  return choices;
}

struct Case {
  const char* name;
  ExpertShape shape;
  size_t rows;
  int terms = 3;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ExpertsTest : public GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  const Case& c_ = GetParam();
  size_t experts_ = size_t(c_.shape.experts), hidden_ = size_t(c_.shape.hidden), width_ = size_t(c_.shape.width);
  // Some experts are far likelier than others.
  std::vector<float> Scores() const {
    std::vector<float> scores = RandomRows(c_.rows * experts_, 2.0f);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] += i % experts_ < 3 ? 3.0f : 0.0f;
    return scores;
  }

  std::vector<double> Wanted(const std::vector<float>& scores, const std::vector<float>& scale,
                             const std::vector<float>& x, const std::vector<float>& gate_up,
                             const std::vector<float>& down) const {
    std::vector<double> out(c_.rows * hidden_, 0.0);
    for (size_t r = 0; r < c_.rows; ++r) {
      const std::vector<double> mine(scores.begin() + ptrdiff_t(r * experts_),
                                     scores.begin() + ptrdiff_t((r + 1) * experts_));
      for (const Choice& choice : Choose(mine, c_.shape.top_k, scale)) {
        AddExpert(choice, x.data() + r * hidden_, gate_up.data() + choice.expert * 2 * width_ * hidden_,
                  down.data() + choice.expert * hidden_ * width_, out.data() + r * hidden_);
      }
    }
    return out;
  }

  void AddExpert(const Choice& choice, const float* x, const float* gate_up, const float* down, double* out) const {
    std::vector<double> inner(width_);
    for (size_t i = 0; i < width_; ++i) {
      double gate = 0, up = 0;
      for (size_t c = 0; c < hidden_; ++c) {
        gate += double{gate_up[i * hidden_ + c]} * x[c];
        up += double{gate_up[(width_ + i) * hidden_ + c]} * x[c];
      }
      inner[i] = reference::GeluTanh(gate) * up;
    }
    for (size_t c = 0; c < hidden_; ++c) {
      for (size_t i = 0; i < width_; ++i) out[c] += choice.weight * inner[i] * down[c * width_ + i];
    }
  }
};

TEST_P(ExpertsTest, AreTheWeightedSumOfTheChosen) {
  const std::vector<float> scores = Scores(), scale = RandomRows(experts_, 1.0f, 2);
  std::vector<float> x = RandomRows(c_.rows * hidden_, 1.0f, 3);
  if (c_.terms == 1) x = FromBf16Bits(ToBf16Bits(x));
  const std::vector<uint16_t> gate_up = ToBf16Bits(RandomRows(experts_ * 2 * width_ * hidden_, 0.2f, 4)),
                              down = ToBf16Bits(RandomRows(experts_ * hidden_ * width_, 0.2f, 5));
  const DeviceArray<float> device_scores(scores), device_scale(scale), device_x(x);
  const DeviceArray<uint16_t> device_gate_up(gate_up), device_down(down), hi(x.size()), lo(x.size()), third(x.size());
  const DeviceArray<float> out((c_.rows + 1) * hidden_);
  const DeviceArray<int32_t> count(std::vector<int32_t>{int32_t(c_.rows)});
  ConvertRows({}, {int(c_.rows)}, c_.shape.hidden, {device_x.data(), c_.shape.hidden},
              {nullptr, hi.data(), lo.data(), third.data()});

  // Room for a row that is not there.
  const RowCount rows{int32_t(c_.rows + 1), count.data()};
  const ExpertWorkspace workspace(c_.shape, int32_t(c_.rows + 2));
  RouteExperts({}, rows, {device_scores.data(), c_.shape.experts}, device_scale.data(), workspace);
  RowTerms terms{hi.data()};
  if (c_.terms == 3) terms = {hi.data(), lo.data(), third.data()};
  RunExperts({}, rows, terms, {device_gate_up.data(), device_down.data()}, workspace, out.data());
  std::vector<float> found = out.ToHost();
  EXPECT_THAT(std::vector<float>(found.end() - ptrdiff_t(hidden_), found.end()), ::testing::Each(::testing::IsNan()));
  found.resize(c_.rows * hidden_);
  EXPECT_LE(RelativeError(found, Wanted(scores, scale, x, FromBf16Bits(gate_up), FromBf16Bits(down))),
            c_.terms == 3 ? 2e-6 : 5e-3);
}

TEST_P(ExpertsTest, ChoicesAreSortedByExpert) {
  const std::vector<float> scores = Scores(), scale(experts_, 1.0f);
  // As a product of three terms leaves them.
  std::vector<float> terms = scores;
  terms.resize(3 * scores.size(), 0.25f);
  const DeviceArray<float> device_terms(terms), device_scale(scale);
  const ExpertWorkspace workspace(c_.shape, int32_t(c_.rows));
  RouteExperts({}, {int32_t(c_.rows)},
               {device_terms.data(), c_.shape.experts, device_terms.data() + scores.size(), 2,
                static_cast<int64_t>(scores.size())},
               device_scale.data(), workspace);
  Synchronize({});
  const size_t choices = c_.rows * size_t(c_.shape.top_k);
  const auto to_host = [&](const int32_t* from, size_t size) {
    std::vector<int32_t> values(size);
    CopyToHost(values.data(), from, size * sizeof(int32_t), {});
    Synchronize({});
    return values;
  };
  const std::vector<int32_t> expert = to_host(workspace.parts().choice_expert, choices),
                             at_slot = to_host(workspace.parts().choice_of_slot, choices),
                             slot_of = to_host(workspace.parts().slot_of_choice, choices);
  std::vector<int32_t> wanted(choices);
  std::iota(wanted.begin(), wanted.end(), 0);
  std::stable_sort(wanted.begin(), wanted.end(),
                   [&](int32_t a, int32_t b) { return expert[size_t(a)] < expert[size_t(b)]; });
  EXPECT_EQ(at_slot, wanted);
  for (size_t slot = 0; slot < choices; ++slot) EXPECT_EQ(slot_of[size_t(at_slot[slot])], int32_t(slot));
  for (size_t r = 0; r < c_.rows; ++r) {
    const std::vector<double> mine(scores.begin() + ptrdiff_t(r * experts_),
                                   scores.begin() + ptrdiff_t((r + 1) * experts_));
    const std::vector<Choice> chosen = Choose(mine, c_.shape.top_k, scale);
    for (size_t k = 0; k < chosen.size(); ++k) EXPECT_EQ(expert[r * chosen.size() + k], int32_t(chosen[k].expert));
  }
}

// {experts, top_k, hidden, width}, rows
INSTANTIATE_TEST_SUITE_P(
    Cases, ExpertsTest,
    ::testing::Values(Case{"one_row", {8, 2, 40, 24}, 1}, Case{"few_rows", {8, 2, 136, 72}, 5},
                      Case{"few_rows_one_term", {6, 3, 64, 40}, 21, 1}, Case{"all_experts", {3, 3, 32, 8}, 4},
                      Case{"many_experts", {128, 8, 64, 40}, 37}, Case{"odd_experts", {70, 1, 24, 16}, 9},
                      Case{"some_rows", {4, 2, 72, 88}, 81}, Case{"some_rows_one_term", {4, 2, 72, 88}, 70, 1},
                      Case{"many_rows", {4, 2, 24, 16}, 600}, Case{"many_rows_one_term", {2, 1, 24, 72}, 530, 1}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ExpertWorkspaceTest, TiesGoToTheLowerExpert) {
  std::string why;
  if (!FindDevice(&why)) GTEST_SKIP() << why;
  const DeviceArray<float> scores(std::vector<float>(40, 1.0f)), scale(std::vector<float>(40, 3.0f));
  const ExpertWorkspace workspace({40, 3, 8, 8}, 1);
  RouteExperts({}, {1}, {scores.data(), 40}, scale.data(), workspace);
  int32_t experts[3];
  float weights[3];
  CopyToHost(experts, workspace.parts().choice_expert, sizeof(experts), {});
  CopyToHost(weights, workspace.parts().choice_weight, sizeof(weights), {});
  Synchronize({});
  EXPECT_THAT(experts, ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(weights, ::testing::Each(::testing::FloatNear(1.0f, 1e-6f)));
}

TEST(ExpertWorkspaceTest, ScoresThatAreNotNumbersGiveResultsThatAreNot) {
  std::string why;
  if (!FindDevice(&why)) GTEST_SKIP() << why;
  const DeviceArray<float> scores(std::vector<float>(8, NAN)), scale(std::vector<float>(8, 1.0f)), out(8);
  const DeviceArray<uint16_t> x(std::vector<uint16_t>(8, 0x3f80)), weights(std::vector<uint16_t>(8 * 16 * 8, 0x3f80));
  const ExpertWorkspace workspace({8, 2, 8, 8}, 1);
  RouteExperts({}, {1}, {scores.data(), 8}, scale.data(), workspace);
  RunExperts({}, {1}, {x.data()}, {weights.data(), weights.data()}, workspace, out.data());
  EXPECT_THAT(out.ToHost(), ::testing::Each(::testing::IsNan()));
}

TEST(ExpertWorkspaceTest, RefusesShapesBeyondItsLimits) {
  for (const ExpertShape& shape : {ExpertShape{600, 2, 8, 8}, ExpertShape{4, 5, 8, 8}, ExpertShape{4, 0, 8, 8}}) {
    try {
      ExpertWorkspace workspace(shape, 1);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("found the best " + std::to_string(shape.top_k)));
    }
  }
}

}  // namespace
}  // namespace lapidary::gpu::testing
