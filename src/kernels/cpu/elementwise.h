#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace lapidary::cpu {

// Single-threaded kernels on rows of floats; a row's result depends on that row alone. Pointers may coincide only where
// said.

// out[r] = x[r] * (mean(x[r]^2) + eps)^-0.5 * weight, rows of n floats. weight [n] or nullptr (none). out may be x.
void RmsNorm(const float* x, const float* weight, float eps, size_t rows, size_t n, float* out);

// h[r] = h[r] + RmsNorm(y[r]; weight), rows of n floats.
void AddRmsNorm(const float* y, const float* weight, float eps, size_t rows, size_t n, float* h);

// gate[i] = gelu_tanh(gate[i]) * up[i]. up rows may lie further apart: row r of `up` starts at up + r * up_stride.
void GeluMul(float* gate, const float* up, size_t rows, size_t n, size_t up_stride);

// x[i] = cap * tanh(x[i] / cap).
void Softcap(float* x, size_t n, float cap);

// x[i] *= factor.
void Scale(float* x, size_t n, float factor);

// out[i] = float(row[i]) * factor, row of `dtype`.
void LoadRow(const void* row, DType dtype, size_t n, float factor, float* out);

// Rotates pairs (j, j + head_dim / 2), j < pairs, of every head of one row: x [heads, head_dim], cos and sin [pairs].
void Rotate(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin, size_t pairs);

// True when no element is infinite or NaN.
bool AllFinite(const float* x, size_t n);

}  // namespace lapidary::cpu
