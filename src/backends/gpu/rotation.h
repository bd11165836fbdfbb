#pragma once

#include <array>
#include <cstdint>

#include "backends/gpu/scratch.h"
#include "kernels/gpu/kv_cache.h"
#include "model/model_plan.h"

namespace lapidary::gpu {

// Cosines and sines of a step's rows for both kinds of attention.
class Rotation {
 public:
  explicit Rotation(const ModelPlan& plan);

  // Makes room for steps of `rows` rows.
  void Reserve(int64_t rows);
  // `positions` [rows] in device memory.
  void Launch(const int32_t* positions, int64_t rows, gpuStream stream);
  RopeTableView Table(AttentionType type) const;

 private:
  struct Kind {
    int pairs = 0;
    Scratch<float> inverse_frequencies;  // [pairs]
    Scratch<float> cos, sin;             // [rows, pairs]
  };
  std::array<Kind, kKvGroups> kinds_;
};

}  // namespace lapidary::gpu
