#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Every operation of a step written plainly, in double: the specification that the fast kernels are tested against.
namespace lapidary::reference {

// out[r][n] = sum over c of x[r][c] * w[n][c]. x [rows, cols], w [outputs, cols], out [rows, outputs].
std::vector<double> Matmul(const std::vector<float>& x, const std::vector<float>& w, size_t rows, size_t outputs,
                           size_t cols);

// x * (mean(x^2) + eps)^-0.5 * weight for rows of n; an empty weight is none.
std::vector<double> RmsNorm(const std::vector<float>& x, const std::vector<float>& weight, double eps, size_t n);

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
double GeluTanh(double x);

// Rotates pairs (j, j + d/2), j < pairs, of x [d] by position * theta^(-2j/d).
std::vector<double> Rotate(const std::vector<float>& x, size_t pairs, double theta, double position);

struct AttentionProblem {
  size_t heads, kv_heads, head_dim;
  int64_t window;          // 0: unbounded
  int64_t first_position;  // of query row 0; keys cover positions [0, first_position + rows)
};

// softmax(q k^T) v with scale 1, causal and windowed. q [rows, heads, d]; k and v [positions, kv_heads, d]; out like q.
std::vector<double> Attention(const AttentionProblem& problem, const std::vector<float>& q, const std::vector<float>& k,
                              const std::vector<float>& v);

}  // namespace lapidary::reference
