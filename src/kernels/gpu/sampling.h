#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// Largest logits of groups of ids that stand together: group g has ids [g * kMaximaGroup, ...). A head product may
// write them itself.
inline constexpr int kMaximaGroup = 256;
constexpr int64_t MaximaGroups(int64_t vocab) { return (vocab + kMaximaGroup - 1) / kMaximaGroup; }
// The largest vocabulary.
inline constexpr int64_t kMaxVocab = int64_t{kMaximaGroup} * 1024;

// Logits of a step, in device memory.
struct LogitsView {
  float* data = nullptr;  // row r: [vocab] at data + r * row_stride
  int64_t row_stride = 0;
  int64_t vocab = 0;
  const int32_t* count = nullptr;  // [1] rows
};

// maxima [max_rows, MaximaGroups(vocab)]: of each group, the largest logit; -inf where there is none but NaN.
void GroupMaxima(gpuStream stream, const LogitsView& logits, int max_rows, float* maxima, bool dependent);

// ids[r]: the id of the largest logit of row r, the lowest among equals; NaN is passed over; 0 where there is none. As
// Argmax of sampling/sampler.h. `maxima` as GroupMaxima gives them.
void Argmax(gpuStream stream, const LogitsView& logits, const float* maxima, int max_rows, int32_t* ids,
            bool dependent);

// What is added to the logit of an id.
struct TokenBias {
  int32_t id;
  float bias;
};

// An id that has penalties: how often the answer has it, and whether prompt or answer have it.
struct TouchedToken {
  int32_t id;
  int32_t answer_count;  // 0 unless presence or frequency penalty counts
  int32_t seen;          // 0 or 1; 0 unless the repetition penalty counts
};

// How the token of one row is chosen: SamplingParams of sampling/sampler.h and the history, as the device reads them.
// Lists are ranges [begin, end) of the arrays in SampleArgs.
struct SamplingRow {
  double temperature = 0.0;  // 0: greedy
  double top_p = 1.0;
  double min_logit = -HUGE_VAL;  // temperature * log(min_p), relative to the largest logit; -inf: off
  double repetition_penalty = 1.0, presence_penalty = 0.0, frequency_penalty = 0.0;
  uint64_t seed = 0;
  uint64_t draw = 0;  // number of the draw: tokens accepted before
  int32_t top_k = 0;  // 0: off
  int32_t suppress_begin = 0, suppress_end = 0;
  int32_t bias_begin = 0, bias_end = 0;        // an id may come again: added in order
  int32_t touched_begin = 0, touched_end = 0;  // each id once
};

// All pointers are device memory.
struct SampleArgs {
  LogitsView logits;  // changed in place by suppression, bias and penalties
  const SamplingRow* rows = nullptr;
  const int32_t* suppress = nullptr;
  const TokenBias* bias = nullptr;
  const TouchedToken* touched = nullptr;
  // Of `logits`, when the caller has them and no row has suppression, bias or penalties: then these are not looked for.
  const float* maxima = nullptr;
  void* workspace = nullptr;  // SampleWorkspaceBytes
  int32_t* ids = nullptr;     // [max_rows] chosen
};
size_t SampleWorkspaceBytes(int64_t vocab, int max_rows);

// Chooses as Sampler::Choose does. Suppression, bias, penalties, the greedy choice and top-k: the same bits. Otherwise
// weights are exp((logit - top) / temperature) in double as there, but by the device's exp, whose last bit may differ;
// and where more than kListedCandidates may be drawn, and over the whole vocabulary (no top-k), they are added in
// another order. So the cut of top-p or the draw may differ where a sum comes within about 1e-13 of its bound.
void Sample(gpuStream stream, const SampleArgs& args, int max_rows, bool dependent);
inline constexpr int kListedCandidates = 4096;

}  // namespace lapidary::gpu
