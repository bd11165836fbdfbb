#include "backends/gpu/decode_stages.h"

#include <algorithm>
#include <string>

#include "kernels/gpu/decode_step.h"

namespace lapidary::gpu {
namespace {

constexpr const char* kMatrices[] = {
    "qkv_proj", "o_proj", "gate_up_proj", "down_proj", "per_layer_input_gate", "per_layer_projection", "embed_tokens"};

struct Stage {
  std::string name;
  int from, to;  // marks
};

std::vector<Stage> Stages() {
  constexpr int kO = static_cast<int>(DecodeMatrix::kO) * kDecodeMarksOfProduct, kAttention = kDecodeAttentionMarks;
  std::vector<Stage> stages;
  for (int m = 0; m < static_cast<int>(std::size(kMatrices)); ++m) {
    const std::string name = kMatrices[m];
    const int begin = m * kDecodeMarksOfProduct;
    if (begin == kO) {
      stages.push_back({"attention: query", begin, kAttention});
      stages.push_back({"attention: segments", kAttention, kAttention + 1});
      stages.push_back({"attention: merge", kAttention + 1, kAttention + 2});
    }
    stages.push_back({name + ": input", begin == kO ? kAttention + 2 : begin, begin + 1});
    stages.push_back({name + ": product", begin + 1, begin + 2});
  }
  return stages;
}

}  // namespace

std::vector<KernelTime> DecodeStages(std::span<const int64_t> marks, int blocks, int layers) {
  std::vector<KernelTime> times;
  for (const Stage& stage : Stages()) {
    KernelTime time{.name = stage.name, .is_stage = true};
    for (int layer = 0; layer <= layers; ++layer) {
      double sum = 0;
      int count = 0;
      for (int block = 0; block < blocks; ++block) {
        const auto of_layer = marks.subspan(static_cast<size_t>((int64_t{block} * (layers + 1) + layer) * kDecodeMarks),
                                            size_t{kDecodeMarks});
        const int64_t from = of_layer[static_cast<size_t>(stage.from)], to = of_layer[static_cast<size_t>(stage.to)];
        if (from == 0 || to == 0) continue;
        sum += static_cast<double>(to - from) * 1e-9;
        ++count;
      }
      if (count == 0) continue;
      ++time.launches;
      time.seconds += std::max(0.0, sum / count);
    }
    if (time.launches > 0) times.push_back(time);
  }
  return times;
}

}  // namespace lapidary::gpu
