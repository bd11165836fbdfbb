#pragma once

#include <cstdint>
#include <span>

#include "backends/backend.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/sampling.h"

namespace lapidary::gpu {

// How the tokens of a step are chosen, in device memory, sent there in one copy. Grows with what it is given, in powers
// of two: then its addresses change, and with them version().
class SampleInput {
 public:
  // `places` [choices]: of the logit rows among those that are chosen from; other rows up to the largest place are
  // greedy. All before the last Send must have been waited for.
  void Send(std::span<const RowSampling> choices, std::span<const int32_t> places, gpuStream stream);

  int version() const { return version_; }
  // Of the rows from `first_row` on; what belongs to the step is still to be filled in.
  SampleArgs Args(int64_t first_row) const;

 private:
  // Numbers of what the arrays have room for, and where they lie in the buffer, in bytes.
  struct Layout {
    size_t rows = 0, suppress = 0, bias = 0, touched = 0;
    bool operator==(const Layout&) const = default;
    size_t suppress_at() const { return rows * sizeof(SamplingRow); }
    size_t bias_at() const { return suppress_at() + suppress * sizeof(int32_t); }
    size_t touched_at() const { return bias_at() + bias * sizeof(TokenBias); }
    size_t size() const { return touched_at() + touched * sizeof(TouchedToken); }
  };

  void Grow(std::span<const RowSampling> choices, size_t rows);

  Layout room_;
  int version_ = 0;
  PinnedMemory host_;
  DeviceMemory device_;
};

}  // namespace lapidary::gpu
