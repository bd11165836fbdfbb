#include "fake_backend.h"

#include <algorithm>
#include <cmath>

#include "sampling/sampler.h"

namespace lapidary {
namespace {

uint64_t Hash(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

}  // namespace

FakeBackend::FakeBackend(const Options& options) : options_(options) {
  plan_.config.vocab_size = options.vocab;
  plan_.config.max_position_embeddings = options.max_position_embeddings;
  plan_.config.sliding_window = options.window;
  plan_.kv.groups[0] = {.layers = 1, .kv_heads = 1, .head_dim = 1, .window = options.window};
  plan_.kv.groups[1] = {.layers = 1, .kv_heads = 1, .head_dim = 1, .window = 0};
}

void FakeBackend::AllocateKv(const std::array<int32_t, kKvGroups>& blocks, DType) {
  for (size_t g = 0; g < kKvGroups; ++g) cells_[g].resize(static_cast<size_t>(blocks[g]) * kKvBlockTokens);
}

FakeBackend::Cell* FakeBackend::At(const BlockTableView& table, int group, int64_t position) {
  const int64_t index = position / kKvBlockTokens - table.first_block;
  if (index < 0 || index >= static_cast<int64_t>(table.blocks.size())) return nullptr;
  const int64_t cell = int64_t{table.blocks[static_cast<size_t>(index)]} * kKvBlockTokens + position % kKvBlockTokens;
  return &cells_[static_cast<size_t>(group)].at(static_cast<size_t>(cell));
}

void FakeBackend::CheckOrder(const StepBatch& batch) {
  for (size_t row = 1; row < batch.ids.size(); ++row) {
    const bool same = batch.sequences[row] == batch.sequences[row - 1];
    if (same && batch.positions[row] != batch.positions[row - 1] + 1) faults.push_back("positions do not rise by one");
    if (!same && batch.sequences[row] != batch.sequences[row - 1] + 1) faults.push_back("sequence is split");
  }
}

std::vector<int32_t> FakeBackend::Visible(const BlockTableView& table, int group, int64_t position) {
  const int64_t window = plan_.kv.groups[static_cast<size_t>(group)].window;
  std::vector<int32_t> tokens;
  for (int64_t p = window == 0 ? 0 : std::max<int64_t>(0, position - window + 1); p <= position; ++p) {
    const Cell* cell = At(table, group, p);
    if (cell == nullptr || cell->position != p) {
      faults.push_back("position " + std::to_string(p) + " of group " + std::to_string(group) + " is not in the cache");
    } else {
      tokens.push_back(cell->token);
    }
  }
  return tokens;
}

void FakeBackend::FillLogits(std::span<const int32_t> sliding, std::span<const int32_t> full,
                             std::span<float> logits) const {
  uint64_t state = 1;
  for (const auto& text : {sliding, full}) {
    const auto used = std::min(text.size(), static_cast<size_t>(options_.memory));
    for (const int32_t token : text.last(used)) state = Hash(state, static_cast<uint64_t>(token) + 1);
  }
  for (size_t id = 0; id < logits.size(); ++id) {
    const double unit = static_cast<double>(Hash(Hash(state, id), 7) >> 11) * 0x1.0p-53;
    logits[id] = static_cast<float>((2 * unit - 1) * options_.scale);
  }
  if (script) logits[static_cast<size_t>(script(full))] = static_cast<float>(options_.scale) + 10;
}

void FakeBackend::Forward(const StepBatch& batch, std::span<float> logits, TapSink*) {
  if (on_step) on_step(batch);
  CheckOrder(batch);
  ++steps;
  rows += static_cast<int64_t>(batch.ids.size());
  max_rows = std::max(max_rows, static_cast<int64_t>(batch.ids.size()));
  const auto table = [&](size_t row, size_t g) { return batch.tables[static_cast<size_t>(batch.sequences[row])][g]; };
  for (size_t row = 0; row < batch.ids.size(); ++row) {
    for (size_t g = 0; g < kKvGroups; ++g) {
      Cell* cell = At(table(row, g), static_cast<int>(g), batch.positions[row]);
      if (cell == nullptr) {
        faults.push_back("no block for a row");
      } else {
        *cell = {batch.ids[row], batch.positions[row]};
      }
    }
  }
  const auto vocab = static_cast<size_t>(plan_.config.vocab_size);
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const auto row = static_cast<size_t>(batch.logit_rows[i]);
    FillLogits(Visible(table(row, 0), 0, batch.positions[row]), Visible(table(row, 1), 1, batch.positions[row]),
               logits.subspan(i * vocab, vocab));
  }
}

void FakeBackend::ForwardGreedy(const StepBatch& batch, std::span<int32_t> best, TapSink* taps) {
  const auto vocab = static_cast<size_t>(plan_.config.vocab_size);
  std::vector<float> logits(batch.logit_rows.size() * vocab);
  Forward(batch, logits, taps);
  ++greedy_steps;
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) best[i] = Argmax(std::span(logits).subspan(i * vocab, vocab));
}

void FakeBackend::ForwardSample(const StepBatch& batch, std::span<const RowSampling> ways, std::span<int32_t> chosen) {
  const auto vocab = static_cast<size_t>(plan_.config.vocab_size);
  std::vector<float> all(batch.logit_rows.size() * vocab);
  Forward(batch, all, nullptr);
  ++sampled_steps;
  if (ways.size() != batch.logit_rows.size()) faults.push_back("not as many ways of sampling as logit rows");
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const std::span<float> logits = std::span(all).subspan(i * vocab, vocab);
    SamplingParams params = *ways[i].params;
    for (const int32_t id : params.suppress_tokens) logits[static_cast<size_t>(id)] = -INFINITY;
    for (const auto& [id, bias] : params.logit_bias) logits[static_cast<size_t>(id)] += static_cast<float>(bias);
    for (const TouchedId& touched : ways[i].touched) {
      double value = logits[static_cast<size_t>(touched.id)];
      if (touched.seen) value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
      if (touched.answer_count > 0) {
        value -= params.presence_penalty + params.frequency_penalty * touched.answer_count;
      }
      logits[static_cast<size_t>(touched.id)] = static_cast<float>(value);
    }
    params.suppress_tokens.clear();
    params.logit_bias.clear();
    params.repetition_penalty = 1;
    params.presence_penalty = params.frequency_penalty = 0;
    Sampler sampler(params, {}, plan_.config.vocab_size);
    for (uint64_t n = 0; n < ways[i].draw; ++n) sampler.Accept(0);
    chosen[i] = sampler.Choose(logits);
  }
}

bool FakeBackend::CopyKvBlock(int group, int32_t from, int32_t to) {
  if (!options_.copies) return false;
  const std::span<Cell> cells = cells_[static_cast<size_t>(group)];
  const auto block = [&](int32_t id) {
    return cells.subspan(static_cast<size_t>(id) * kKvBlockTokens, kKvBlockTokens);
  };
  std::copy_n(block(from).begin(), kKvBlockTokens, block(to).begin());
  return true;
}

}  // namespace lapidary
