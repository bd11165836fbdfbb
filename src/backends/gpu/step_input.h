#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backends/backend.h"
#include "kernels/gpu/kv_cache.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// The rows and block tables of a step in device memory, sent there in one copy. Grows with what it is given, in powers
// of two: then its addresses change, and with them version().
class StepInput {
 public:
  // Has room for `least_rows` rows of as many sequences from the start.
  explicit StepInput(int64_t least_rows = 8) : least_rows_(least_rows) {}

  // All before the last Send must have been waited for.
  void Send(const StepBatch& batch, gpuStream stream);

  int version() const { return version_; }
  // [1], then [count] each, padded with zeros up to `least_rows` or more.
  const int32_t* count() const { return At(0); }
  const int32_t* ids() const { return At(offsets_.ids); }
  const int32_t* positions() const { return At(offsets_.positions); }
  const int32_t* logit_rows() const { return At(offsets_.logit_rows); }
  StepRowsView rows() const { return {count(), positions(), At(offsets_.sequences)}; }
  // [1]: how many of rows [piece * kPieceRows, (piece + 1) * kPieceRows) there are; of the first kPieces pieces.
  static constexpr int64_t kPieceRows = 128, kPieces = 2;
  const int32_t* piece_count(int64_t piece) const { return At(2 + piece); }
  // The same of the logit rows alone.
  const int32_t* kept_ids() const { return At(offsets_.kept_ids); }
  StepRowsView kept_rows() const { return {At(1), At(offsets_.kept_positions), At(offsets_.kept_sequences)}; }
  std::span<const int32_t> kept_positions() const;  // on the host, until the next Send
  // The block tables of a group; data and the rest are the layer's.
  KvCacheView Tables(size_t group) const;

 private:
  struct Limits {
    int64_t rows = 0, sequences = 0;
    std::array<int64_t, kKvGroups> blocks{};  // of one sequence's table
    bool operator==(const Limits&) const = default;
  };
  // Places in the buffer, in int32.
  struct Offsets {
    int64_t ids = 0, positions = 0, sequences = 0, logit_rows = 0, kept_ids = 0, kept_positions = 0, kept_sequences = 0;
    std::array<int64_t, kKvGroups> first_block{}, blocks{};
    int64_t end = 0;
  };

  void Grow(const StepBatch& batch);

  const int32_t* At(int64_t offset) const { return static_cast<const int32_t*>(device_.data()) + offset; }

  int64_t least_rows_;
  Limits limits_;
  Offsets offsets_;
  int version_ = 0;
  PinnedMemory host_;
  DeviceMemory device_;
};

}  // namespace lapidary::gpu
