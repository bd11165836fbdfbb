#include "backends/gpu/rotation.h"

#include <vector>

#include "kernels/gpu/elementwise.h"

namespace lapidary::gpu {

Rotation::Rotation(const ModelPlan& plan) {
  for (const LayerPlan& layer : plan.layers) {
    Kind& kind = kinds_[static_cast<size_t>(layer.attention)];
    if (kind.pairs > 0) continue;
    kind.pairs = layer.rotary_pairs;
    const std::vector<float> values = InverseFrequencies(layer);
    kind.inverse_frequencies.Reserve(kind.pairs);
    CopyToDevice(kind.inverse_frequencies.data(), values.data(), values.size() * sizeof(float), nullptr);
    Synchronize(nullptr);
  }
}

void Rotation::Reserve(int64_t rows) {
  for (Kind& kind : kinds_) {
    kind.cos.Reserve(rows * kind.pairs);
    kind.sin.Reserve(rows * kind.pairs);
  }
}

void Rotation::Launch(const int32_t* positions, int64_t rows, gpuStream stream) {
  for (Kind& kind : kinds_) {
    if (kind.pairs == 0) continue;
    RopeTable(stream, {static_cast<int32_t>(rows), nullptr}, positions, kind.inverse_frequencies.data(), kind.pairs,
              kind.cos.data(), kind.sin.data());
  }
}

RopeTableView Rotation::Table(AttentionType type) const {
  const Kind& kind = kinds_[static_cast<size_t>(type)];
  return {kind.cos.data(), kind.sin.data(), kind.pairs};
}

}  // namespace lapidary::gpu
