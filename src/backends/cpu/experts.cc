#include "backends/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/elementwise.h"

namespace lapidary::cpu {

ExpertRouting RouteExperts(const float* scores, size_t rows, size_t experts, int top_k,
                           std::span<const float> per_expert_scale) {
  ExpertRouting routing{rows, std::min(static_cast<size_t>(top_k), experts), {}};
  std::vector<float> probability(experts);
  std::vector<int32_t> order(experts);
  for (size_t r = 0; r < rows; ++r) {
    const float* score = scores + r * experts;
    const float top = *std::max_element(score, score + experts);
    float sum = 0;
    for (size_t e = 0; e < experts; ++e) sum += probability[e] = std::exp(score[e] - top);
    for (float& p : probability) p /= sum;
    std::iota(order.begin(), order.end(), 0);
    const auto likelier = [&](int32_t a, int32_t b) {
      const float pa = probability[static_cast<size_t>(a)], pb = probability[static_cast<size_t>(b)];
      return pa > pb || (pa == pb && a < b);
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(routing.top_k), order.end(), likelier);
    float chosen = 0;
    for (size_t i = 0; i < routing.top_k; ++i) chosen += probability[static_cast<size_t>(order[i])];
    for (size_t i = 0; i < routing.top_k; ++i) {
      const size_t e = static_cast<size_t>(order[i]);
      routing.choices.push_back({static_cast<int32_t>(r), order[i], probability[e] / chosen * per_expert_scale[e]});
    }
  }
  return routing;
}

void RunExperts(ThreadPool& pool, MatmulScratch& scratch, std::span<const WeightMatrix> gate_up,
                std::span<const WeightMatrix> down, const ExpertRouting& routing, const float* x, float* out) {
  const size_t hidden = static_cast<size_t>(down[0].rows), width = static_cast<size_t>(down[0].cols);
  std::vector<std::vector<size_t>> choices_of(gate_up.size());  // indices into routing.choices
  for (size_t c = 0; c < routing.choices.size(); ++c)
    choices_of[static_cast<size_t>(routing.choices[c].expert)].push_back(c);

  std::vector<float> input, activation, gate, result(routing.choices.size() * hidden), output;
  for (size_t e = 0; e < choices_of.size(); ++e) {
    const std::vector<size_t>& mine = choices_of[e];
    if (mine.empty()) continue;
    const int64_t rows = static_cast<int64_t>(mine.size());
    input.resize(mine.size() * hidden);
    for (size_t i = 0; i < mine.size(); ++i) {
      std::copy_n(x + static_cast<size_t>(routing.choices[mine[i]].row) * hidden, hidden, input.data() + i * hidden);
    }
    activation.resize(mine.size() * 2 * width);
    const MatmulTarget to_activation{gate_up[e], activation.data(), gate_up[e].rows};
    Matmul(pool, scratch, input.data(), rows, static_cast<int64_t>(hidden), {&to_activation, 1});
    gate.resize(mine.size() * width);
    for (size_t i = 0; i < mine.size(); ++i) {
      std::copy_n(activation.data() + i * 2 * width, width, gate.data() + i * width);
    }
    GeluMul(gate.data(), activation.data() + width, mine.size(), width, 2 * width);
    output.resize(mine.size() * hidden);
    const MatmulTarget to_output{down[e], output.data(), down[e].rows};
    Matmul(pool, scratch, gate.data(), rows, static_cast<int64_t>(width), {&to_output, 1});
    for (size_t i = 0; i < mine.size(); ++i)
      std::copy_n(output.data() + i * hidden, hidden, result.data() + mine[i] * hidden);
  }
  for (size_t r = 0; r < routing.rows; ++r) {
    float* to = out + r * hidden;
    std::fill_n(to, hidden, 0.0f);
    for (size_t i = r * routing.top_k; i < (r + 1) * routing.top_k; ++i) {
      const float weight = routing.choices[i].weight;
      for (size_t c = 0; c < hidden; ++c) to[c] += weight * result[i * hidden + c];
    }
  }
}

}  // namespace lapidary::cpu
