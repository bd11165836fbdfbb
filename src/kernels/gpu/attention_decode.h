#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/kv_cache.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

struct AttentionDecodeShape {
  int heads = 0;
  int kv_heads = 0;  // divides heads; query head h reads K/V head h / (heads / kv_heads)
  int head_dim = 0;
  int32_t window = 0;   // 0: unbounded; else position i sees max(0, i - window + 1) .. i
  bool is_bf16 = true;  // the cache
};

// How one kind of layer is computed in steps of at most max_rows rows; made once, so that a launch can be captured.
struct AttentionDecodePlan {
  AttentionDecodeShape shape;
  int max_rows = 0;
  int max_segments = 0;  // a row's context is cut into at most so many parts that are computed apart
  int ring_slots = 0;
  unsigned grid = 0;
  size_t shared_bytes = 0;
  size_t workspace_bytes = 0;
};

// Rows in a step of the few-rows kind: plans for up to so many rows cut the context alike.
inline constexpr int kDecodeFewRows = 8;
// The most rows of a plan.
inline constexpr int kDecodeMaxRows = 512;

// `max_positions`: bound of position + 1. Throws Error: kInvalidArgument for a shape that is not supported,
// kUnsupported for a device with too little shared memory.
AttentionDecodePlan PlanAttentionDecode(const AttentionDecodeShape& shape, int max_rows, int64_t max_positions,
                                        const DeviceInfo& device);

// All pointers are device memory.
struct AttentionDecodeArgs {
  RowInput q = {};                  // raw projections, [rows, heads * head_dim]
  const float* q_weight = nullptr;  // [head_dim] of the norm of q
  float eps = 0;
  RopeTableView rope = {};
  StepRowsView rows = {};  // where plan.max_rows <= kDecodeFewRows, so many are read, whatever their number
  KvCacheView cache = {};  // holds the keys and values of the step's rows too
  RowOutput out = {};      // [rows, heads * head_dim]
  // plan.workspace_bytes, all zero before the first use. Launches in one stream may share it, of different plans
  // too.
  void* workspace = nullptr;
};

// out[r][h] = softmax(q'[r][h] . k) v over the positions that row r sees, scale 1, where q' = rotated(normed(q) *
// q_weight). Results are float32-like: q, the softmax weights and a float32 cache count as three bfloat16 terms, which
// hold all of their 24 bits. A row's result depends on its sequence and position alone; among plans, only on the device
// and on whether max_rows <= kDecodeFewRows.
//
// With `dependent`, the kernel reads counts, positions, sequences, block tables, and the keys and values of positions
// before this step's while earlier kernels still run: none of the kernels since the last one that was launched without
// `dependent` may write those.
void AttentionDecode(gpuStream stream, const AttentionDecodePlan& plan, const AttentionDecodeArgs& args,
                     bool dependent);

}  // namespace lapidary::gpu
