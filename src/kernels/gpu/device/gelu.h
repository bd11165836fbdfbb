#pragma once

#include "kernels/gpu/device/common.h"

namespace lapidary::gpu {

// The tanh form. tanhf saturates, so large arguments are safe.
__device__ __forceinline__ float GeluTanh(float x) {
  const float inner = 0.79788456080286535588f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
  return 0.5f * x * (1.0f + tanhf(inner));
}

}  // namespace lapidary::gpu
