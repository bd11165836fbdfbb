#include "backends/gpu/sample_input.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lapidary::gpu {
namespace {

constexpr size_t kLeastRows = 256, kLeastListed = 64;

size_t Grown(size_t room, size_t wanted, size_t least) {
  return std::max(room, std::bit_ceil(std::max(wanted, least)));
}

SamplingRow RowOf(const RowSampling& choice) {
  const SamplingParams& p = *choice.params;
  SamplingRow row;
  row.temperature = p.temperature;
  row.top_p = p.top_p;
  if (p.min_p > 0) row.min_logit = p.temperature * std::log(p.min_p);
  row.repetition_penalty = p.repetition_penalty;
  row.presence_penalty = p.presence_penalty;
  row.frequency_penalty = p.frequency_penalty;
  row.seed = p.seed;
  row.draw = choice.draw;
  // No vocabulary is that large: then it is off.
  row.top_k = static_cast<int32_t>(std::min<int64_t>(p.top_k, std::numeric_limits<int32_t>::max()));
  return row;
}

}  // namespace

void SampleInput::Grow(std::span<const RowSampling> choices, size_t rows) {
  size_t suppress = 0, bias = 0, touched = 0;
  for (const RowSampling& choice : choices) {
    suppress += choice.params->suppress_tokens.size();
    bias += choice.params->logit_bias.size();
    touched += choice.touched.size();
  }
  const Layout room{Grown(room_.rows, rows, kLeastRows), Grown(room_.suppress, suppress, kLeastListed),
                    Grown(room_.bias, bias, kLeastListed), Grown(room_.touched, touched, kLeastListed)};
  if (room == room_) return;
  room_ = room;
  ++version_;
  host_ = PinnedMemory(room.size());
  device_ = DeviceMemory(room.size());
}

void SampleInput::Send(std::span<const RowSampling> choices, std::span<const int32_t> places, gpuStream stream) {
  const size_t rows = places.empty() ? 0 : static_cast<size_t>(*std::ranges::max_element(places)) + 1;
  Grow(choices, rows);
  auto* bytes = static_cast<std::byte*>(host_.data());
  auto* row = reinterpret_cast<SamplingRow*>(bytes);
  auto* suppress = reinterpret_cast<int32_t*>(bytes + room_.suppress_at());
  auto* bias = reinterpret_cast<TokenBias*>(bytes + room_.bias_at());
  auto* touched = reinterpret_cast<TouchedToken*>(bytes + room_.touched_at());
  std::fill_n(row, rows, SamplingRow{});
  int32_t suppressed = 0, biased = 0, counted = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    SamplingRow& to = row[places[i]] = RowOf(choices[i]);
    to.suppress_begin = suppressed;
    for (const int32_t id : choices[i].params->suppress_tokens) suppress[suppressed++] = id;
    to.suppress_end = suppressed;
    to.bias_begin = biased;
    for (const auto& [id, value] : choices[i].params->logit_bias) bias[biased++] = {id, static_cast<float>(value)};
    to.bias_end = biased;
    to.touched_begin = counted;
    for (const TouchedId& id : choices[i].touched) touched[counted++] = {id.id, id.answer_count, id.seen ? 1 : 0};
    to.touched_end = counted;
  }
  CopyToDevice(device_.data(), host_.data(), room_.size(), stream);
}

SampleArgs SampleInput::Args(int64_t first_row) const {
  const auto* bytes = static_cast<const std::byte*>(device_.data());
  SampleArgs args;
  args.rows = reinterpret_cast<const SamplingRow*>(bytes) + first_row;
  args.suppress = reinterpret_cast<const int32_t*>(bytes + room_.suppress_at());
  args.bias = reinterpret_cast<const TokenBias*>(bytes + room_.bias_at());
  args.touched = reinterpret_cast<const TouchedToken*>(bytes + room_.touched_at());
  return args;
}

}  // namespace lapidary::gpu
