#pragma once

#include <cstdint>

#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/kv_cache.h"
#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {

// All pointers are device memory.
struct KvAppendArgs {
  RowInput k = {};                  // raw projections, [rows, kv_heads * head_dim]
  RowInput v = {};                  // V = K: the same as k
  const float* k_weight = nullptr;  // [head_dim] of the norm of k
  float eps = 0;
  int kv_heads = 0;
  int head_dim = 0;
  RopeTableView rope = {};
  StepRowsView rows = {};
  KvCacheView cache = {};
};

// k = rotated(normed(k) * k_weight) and v = normed(v) of every row, at its position in the cache; bfloat16 is rounded
// to nearest even. At most max_rows rows are there. Throws Error kInvalidArgument for a head_dim that is not supported.
//
// With `dependent`, the kernel reads counts, positions, sequences and block tables while earlier kernels still run:
// none of the kernels since the last one that was launched without `dependent` may write those.
void KvAppend(gpuStream stream, const KvAppendArgs& args, int max_rows, bool dependent);

}  // namespace lapidary::gpu
