#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/matmul.h"

namespace lapidary::cpu {

struct ExpertChoice {
  int32_t row = 0;
  int32_t expert = 0;
  float weight = 0;
};

struct ExpertRouting {
  size_t rows = 0;
  size_t top_k = 0;
  std::vector<ExpertChoice> choices;  // [rows, top_k], a row's most likely expert first
};

// softmax over the experts, the top_k best (ties to the lower expert), renormalised to sum 1, times the expert's scale.
// scores [rows, experts]. Source: transformers 5.17, Gemma4TextRouter.
ExpertRouting RouteExperts(const float* scores, size_t rows, size_t experts, int top_k,
                           std::span<const float> per_expert_scale);

// out[r] = sum over a row's choices of weight * down(gelu_tanh(gate x[r]) * up x[r]), added in the order of its
// choices. x and out are [rows, hidden]. The rows of one expert are run together.
void RunExperts(ThreadPool& pool, MatmulScratch& scratch, std::span<const WeightMatrix> gate_up,
                std::span<const WeightMatrix> down, const ExpertRouting& routing, const float* x, float* out);

}  // namespace lapidary::cpu
