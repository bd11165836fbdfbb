#include "cli/direct_runner.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"

namespace lapidary {
namespace {

int32_t PoolSize(const KvGroup& group, const DirectRunner::Size& size) {
  const int64_t whole = BlocksNeeded(group, size.depth + size.beyond, size.depth + size.beyond);
  const int64_t released = BlocksNeeded(group, size.depth, size.step_tokens) + size.beyond / kKvBlockTokens + 2;
  const int64_t each = group.layers == 0 ? 0 : std::min(whole, released);
  if (each > std::numeric_limits<int32_t>::max() / size.sequences) {
    Throw(ErrorKind::kInvalidArgument, "K/V cache: found " + std::to_string(size.sequences) + " sequences of " +
                                           std::to_string(size.depth + size.beyond) +
                                           " tokens, wanted fewer than 2^31 blocks");
  }
  return static_cast<int32_t>(each * size.sequences);
}

}  // namespace

std::vector<int32_t> ArbitraryIds(int64_t count, int64_t vocab, uint64_t seed) {
  constexpr int64_t kFirst = 10;
  const int64_t first = vocab > kFirst ? kFirst : 0;
  std::vector<int32_t> ids(static_cast<size_t>(count));
  uint64_t state = seed;
  for (int32_t& id : ids) {
    // Knuth's MMIX generator (The Art of Computer Programming, volume 2, 3.3.4); its high bits are the good ones.
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int32_t>(first + static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab - first)));
  }
  return ids;
}

DirectRunner::DirectRunner(Backend& backend, const Size& size, DType kv_type)
    : backend_(backend),
      size_(size),
      pools_{BlockPool(PoolSize(backend.plan().kv.groups[0], size)),
             BlockPool(PoolSize(backend.plan().kv.groups[1], size))},
      cached_(static_cast<size_t>(size.sequences), 0) {
  for (int s = 0; s < size.sequences; ++s) blocks_.emplace_back(backend.plan().kv, pools_);
  backend.AllocateKv({pools_[0].count(), pools_[1].count()}, kv_type);
}

void DirectRunner::Append(int sequence, std::span<const int32_t> ids, int64_t logit_rows) {
  const auto s = static_cast<size_t>(sequence);
  const auto count = static_cast<int64_t>(ids.size());
  if (!blocks_[s].Reserve(cached_[s] + count)) {
    Throw(ErrorKind::kOutOfMemory,
          "K/V cache: found no free block, wanted room for " + std::to_string(cached_[s] + count) + " tokens");
  }
  for (int64_t i = 0; i < count; ++i) {
    if (i >= count - logit_rows) logit_rows_.push_back(static_cast<int32_t>(ids_.size()));
    ids_.push_back(ids[static_cast<size_t>(i)]);
    positions_.push_back(static_cast<int32_t>(cached_[s] + i));
    sequences_.push_back(static_cast<int32_t>(tables_.size()));
  }
  tables_.push_back({blocks_[s].View(0), blocks_[s].View(1)});
  cached_[s] += count;
}

template <typename F>
void DirectRunner::Step(bool stop_early, const F& forward) {
  forward(StepBatch{.ids = ids_,
                    .positions = positions_,
                    .sequences = sequences_,
                    .tables = tables_,
                    .logit_rows = logit_rows_,
                    .stop_early = stop_early});
  ++work_.steps;
  work_.flops += backend_.LastStepFlops();
  for (auto* list : {&ids_, &positions_, &sequences_, &logit_rows_}) list->clear();
  tables_.clear();
}

std::span<float> DirectRunner::Forward(TapSink* taps) {
  const size_t size = logit_rows_.size() * static_cast<size_t>(backend_.plan().vocab());
  logits_.resize(std::max(logits_.size(), size));
  const std::span<float> logits = std::span(logits_).first(size);
  Step(taps == nullptr, [&](const StepBatch& batch) { backend_.Forward(batch, logits, taps); });
  return logits;
}

void DirectRunner::Fill(int sequence, std::span<const int32_t> ids) {
  while (!ids.empty()) {
    const size_t rows = std::min(ids.size(), static_cast<size_t>(size_.step_tokens));
    Run(sequence, ids.first(rows), 0, nullptr);
    blocks_[static_cast<size_t>(sequence)].ReleaseBefore(cached_[static_cast<size_t>(sequence)]);
    ids = ids.subspan(rows);
  }
}

std::span<float> DirectRunner::Run(int sequence, std::span<const int32_t> ids, int64_t logit_rows, TapSink* taps) {
  Append(sequence, ids, logit_rows);
  return Forward(taps);
}

void DirectRunner::Decode(std::span<int32_t> ids) {
  for (size_t s = 0; s < ids.size(); ++s) Append(static_cast<int>(s), ids.subspan(s, 1), 1);
  Step(true, [&](const StepBatch& batch) { backend_.ForwardGreedy(batch, ids, nullptr); });
}

std::vector<KernelTime> DirectRunner::TimeDecode(std::span<const int32_t> ids) {
  for (size_t s = 0; s < ids.size(); ++s) Append(static_cast<int>(s), ids.subspan(s, 1), 1);
  std::vector<KernelTime> kernels;
  Step(true, [&](const StepBatch& batch) { kernels = backend_.TimeKernels(batch); });
  return kernels;
}

void DirectRunner::Truncate(int sequence, int64_t end) {
  blocks_[static_cast<size_t>(sequence)].Truncate(end);
  cached_[static_cast<size_t>(sequence)] = end;
}

DirectRunner::Work DirectRunner::TakeWork() { return std::exchange(work_, {}); }

}  // namespace lapidary
