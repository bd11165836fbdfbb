#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "kv/block_table.h"

namespace lapidary {

// Folder of the test data that is part of the project.
inline std::string TestData(const std::string& name) {
  return std::string(LAPIDARY_SOURCE_DIR) + "/tests/data/" + name;
}

// Ids below 1,003, the same for the same seed.
inline std::vector<int32_t> Ids(size_t count, uint32_t seed) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) {
    seed = seed * 1664525u + 1013904223u;
    id = static_cast<int32_t>(3 + (seed >> 8) % 1000);
  }
  return ids;
}

struct RunOptions {
  int64_t chunk = 1 << 20;
  bool stop_early = true;
  bool all_logits = false;
};

// Runs whole sequences through a backend, block tables included.
class ModelRunner {
 public:
  ModelRunner(Backend& backend, DType kv_type, int sequences, int64_t context)
      : backend_(backend), pools_(MakePools(backend, sequences, context)) {
    std::array<int32_t, kKvGroups> blocks{};
    for (size_t g = 0; g < kKvGroups; ++g) blocks[g] = pools_[g].count();
    backend.AllocateKv(blocks, kv_type);
    for (int s = 0; s < sequences; ++s) blocks_.emplace_back(backend.plan().kv, pools_);
  }

  int64_t vocab() const { return backend_.plan().vocab(); }

  // Starts sequence `s` over with `ids`; returns logits [1 or ids.size(), vocab].
  std::vector<float> Prefill(int s, std::span<const int32_t> ids, const RunOptions& options = {},
                             TapSink* taps = nullptr) {
    blocks_[static_cast<size_t>(s)].Clear();
    std::vector<float> out;
    const int64_t n = static_cast<int64_t>(ids.size());
    for (int64_t begin = 0; begin < n; begin += options.chunk) {
      const int64_t end = std::min(n, begin + options.chunk);
      std::vector<int32_t> wanted;
      for (int64_t i = begin; i < end; ++i) {
        if (options.all_logits || i == n - 1) wanted.push_back(static_cast<int32_t>(i - begin));
      }
      const std::vector<float> part =
          Step({{s, begin, {ids.begin() + begin, ids.begin() + end}}}, wanted, options.stop_early, taps);
      out.insert(out.end(), part.begin(), part.end());
      blocks_[static_cast<size_t>(s)].ReleaseBefore(end);
    }
    return out;
  }

  struct Part {
    int sequence;
    int64_t position;  // of the first id
    std::vector<int32_t> ids;
  };

  // One step over parts of several sequences; returns logits of `wanted` rows.
  std::vector<float> Step(const std::vector<Part>& parts, const std::vector<int32_t>& wanted, bool stop_early = true,
                          TapSink* taps = nullptr) {
    std::vector<float> logits(wanted.size() * static_cast<size_t>(vocab()));
    Run(parts, wanted, stop_early, [&](const StepBatch& batch) { backend_.Forward(batch, logits, taps); });
    return logits;
  }

  std::vector<int32_t> StepSampled(const std::vector<Part>& parts, const std::vector<int32_t>& wanted,
                                   const std::vector<RowSampling>& rows) {
    std::vector<int32_t> chosen(wanted.size());
    Run(parts, wanted, true, [&](const StepBatch& batch) { backend_.ForwardSample(batch, rows, chosen); });
    return chosen;
  }

  std::vector<KernelTime> TimeKernels(const std::vector<Part>& parts, const std::vector<int32_t>& wanted) {
    std::vector<KernelTime> kernels;
    Run(parts, wanted, true, [&](const StepBatch& batch) { kernels = backend_.TimeKernels(batch); });
    return kernels;
  }

  // The same; returns the best ids.
  std::vector<int32_t> StepGreedy(const std::vector<Part>& parts, const std::vector<int32_t>& wanted) {
    std::vector<int32_t> best(wanted.size());
    Run(parts, wanted, true, [&](const StepBatch& batch) { backend_.ForwardGreedy(batch, best, nullptr); });
    return best;
  }

 private:
  template <typename F>
  void Run(const std::vector<Part>& parts, const std::vector<int32_t>& wanted, bool stop_early, const F& forward) {
    std::vector<int32_t> ids, positions, sequences;
    for (const Part& part : parts) {
      const int64_t end = part.position + static_cast<int64_t>(part.ids.size());
      if (!blocks_[static_cast<size_t>(part.sequence)].Reserve(end)) throw std::runtime_error("no free block");
      for (size_t i = 0; i < part.ids.size(); ++i) {
        ids.push_back(part.ids[i]);
        positions.push_back(static_cast<int32_t>(part.position + static_cast<int64_t>(i)));
        sequences.push_back(part.sequence);
      }
    }
    std::vector<std::array<BlockTableView, kKvGroups>> tables;
    for (const SequenceBlocks& blocks : blocks_) tables.push_back({blocks.View(0), blocks.View(1)});
    forward(StepBatch{ids, positions, sequences, tables, wanted, stop_early});
  }

  static BlockPools MakePools(Backend& backend, int sequences, int64_t context) {
    const auto pool = [&](size_t g) {
      return BlockPool(static_cast<int32_t>(sequences * BlocksNeeded(backend.plan().kv.groups[g], context, context)));
    };
    return {pool(0), pool(1)};
  }

  Backend& backend_;
  BlockPools pools_;
  std::vector<SequenceBlocks> blocks_;
};

// Index of the largest element, the first of equals.
inline int32_t Argmax(std::span<const float> x) {
  return static_cast<int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

}  // namespace lapidary
