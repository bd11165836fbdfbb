#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backends/backend.h"
#include "backends/gpu/forward_pass.h"
#include "backends/gpu/sample_input.h"
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
  // Waits for the step. `chosen` [rows]; `sampling` says how, null: the best logit. Throws Error kDevice as
  // ForwardPass::Run does.
  void Run(const StepBatch& batch, const SampleInput* sampling, std::span<int32_t> chosen, gpuStream stream);
  // The step's launches, in a graph that is recorded while `times` lives, and run.
  void Time(const StepBatch& batch, GraphTimes& times, gpuStream stream);

 private:
  struct Recorded {
    Graph graph;
    int version = 0, sampling_version = 0;  // of what the step is read from
  };
  static constexpr size_t kSizes = 16;

  Recorded& Prepared(size_t size, const SampleInput* sampling, gpuStream stream);

  ForwardPass pass_;
  StepInput input_{kMostRows};
  PinnedMemory results_;
  std::array<Recorded, kSizes> greedy_, sampled_;
};

}  // namespace lapidary::gpu
