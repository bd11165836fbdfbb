#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backends/backend.h"
#include "backends/gpu/forward_pass.h"
#include "backends/gpu/step_input.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// Steps in which each sequence decodes and every row's choice is wanted: each number of rows, rounded up to one of few,
// is recorded once as a graph, which then takes any step of as many rows.
class BatchGraphs {
 public:
  static constexpr int64_t kMostRows = 256;

  // Everything must outlive it.
  BatchGraphs(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage,
              const ForwardPass::Setup& setup);

  static bool Takes(const StepBatch& batch);
  // Waits for the step. best [rows]. Throws Error kDevice as ForwardPass::Run does.
  void Run(const StepBatch& batch, std::span<int32_t> best, gpuStream stream);

 private:
  struct Recorded {
    Graph graph;
    int version = 0;  // of the step's input
  };
  static constexpr size_t kSizes = 16;

  Recorded& Prepared(size_t size, gpuStream stream);

  ForwardPass pass_;
  StepInput input_{kMostRows};
  PinnedMemory results_;
  std::array<Recorded, kSizes> recorded_;
};

}  // namespace lapidary::gpu
