#include "backends/gpu/step_input.h"

#include <algorithm>
#include <bit>

namespace lapidary::gpu {
namespace {

constexpr int64_t kAlignInts = 4;  // 16 bytes

// `limit`, or the power of two that holds `wanted`.
int64_t Grown(int64_t limit, size_t wanted, int64_t least) {
  const auto needed = std::max(static_cast<uint64_t>(wanted), static_cast<uint64_t>(least));
  return std::max(limit, static_cast<int64_t>(std::bit_ceil(needed)));
}

}  // namespace

void StepInput::Grow(const StepBatch& batch) {
  Limits limits = limits_;
  limits.rows = Grown(limits.rows, batch.ids.size(), least_rows_);
  limits.sequences = Grown(limits.sequences, batch.tables.size(), least_rows_);
  for (size_t g = 0; g < kKvGroups; ++g) {
    for (const auto& tables : batch.tables) limits.blocks[g] = Grown(limits.blocks[g], tables[g].blocks.size(), 16);
  }
  if (limits == limits_) return;
  limits_ = limits;
  ++version_;
  int64_t end = kAlignInts;  // the counts of rows, logit rows and rows in pieces come first
  const auto take = [&](int64_t ints) {
    const int64_t begin = end;
    end += (ints + kAlignInts - 1) / kAlignInts * kAlignInts;
    return begin;
  };
  for (int64_t* rows : {&offsets_.ids, &offsets_.positions, &offsets_.sequences, &offsets_.logit_rows,
                        &offsets_.kept_ids, &offsets_.kept_positions, &offsets_.kept_sequences}) {
    *rows = take(limits_.rows);
  }
  for (size_t g = 0; g < kKvGroups; ++g) {
    offsets_.first_block[g] = take(limits_.sequences);
    offsets_.blocks[g] = take(limits_.sequences * limits_.blocks[g]);
  }
  offsets_.end = end;
  host_ = PinnedMemory(static_cast<size_t>(end) * sizeof(int32_t));
  device_ = DeviceMemory(static_cast<size_t>(end) * sizeof(int32_t));
}

void StepInput::Send(const StepBatch& batch, gpuStream stream) {
  Grow(batch);
  int32_t* host = static_cast<int32_t*>(host_.data());
  std::fill_n(host, offsets_.end, 0);
  host[0] = static_cast<int32_t>(batch.ids.size());
  std::ranges::copy(batch.ids, host + offsets_.ids);
  std::ranges::copy(batch.positions, host + offsets_.positions);
  std::ranges::copy(batch.sequences, host + offsets_.sequences);
  std::ranges::copy(batch.logit_rows, host + offsets_.logit_rows);
  host[1] = static_cast<int32_t>(batch.logit_rows.size());
  for (int32_t piece = 0; piece < kPieces; ++piece) {
    host[2 + piece] = std::clamp<int32_t>(host[0] - piece * static_cast<int32_t>(kPieceRows), 0, kPieceRows);
  }
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const auto row = static_cast<size_t>(batch.logit_rows[i]);
    const auto at = static_cast<int64_t>(i);
    host[offsets_.kept_ids + at] = batch.ids[row];
    host[offsets_.kept_positions + at] = batch.positions[row];
    host[offsets_.kept_sequences + at] = batch.sequences[row];
  }
  for (size_t g = 0; g < kKvGroups; ++g) {
    for (size_t s = 0; s < batch.tables.size(); ++s) {
      const BlockTableView& table = batch.tables[s][g];
      host[offsets_.first_block[g] + static_cast<int64_t>(s)] = table.first_block;
      std::ranges::copy(table.blocks, host + offsets_.blocks[g] + static_cast<int64_t>(s) * limits_.blocks[g]);
    }
  }
  CopyToDevice(device_.data(), host, static_cast<size_t>(offsets_.end) * sizeof(int32_t), stream);
}

std::span<const int32_t> StepInput::kept_positions() const {
  const int32_t* host = static_cast<const int32_t*>(host_.data());
  return {host + offsets_.kept_positions, static_cast<size_t>(host[1])};
}

KvCacheView StepInput::Tables(size_t group) const {
  KvCacheView view;
  view.blocks = At(offsets_.blocks[group]);
  view.first_block = At(offsets_.first_block[group]);
  view.max_blocks = static_cast<int32_t>(limits_.blocks[group]);
  return view;
}

}  // namespace lapidary::gpu
