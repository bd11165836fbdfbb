#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lapidary::reference {

std::vector<double> Matmul(const std::vector<float>& x, const std::vector<float>& w, size_t rows, size_t outputs,
                           size_t cols) {
  std::vector<double> out(rows * outputs, 0.0);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t n = 0; n < outputs; ++n) {
      for (size_t c = 0; c < cols; ++c) out[r * outputs + n] += double{x[r * cols + c]} * w[n * cols + c];
    }
  }
  return out;
}

std::vector<double> RmsNorm(const std::vector<float>& x, const std::vector<float>& weight, double eps, size_t n) {
  std::vector<double> out(x.begin(), x.end());
  for (size_t row = 0; row < x.size(); row += n) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += out[row + i] * out[row + i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (size_t i = 0; i < n; ++i) out[row + i] *= scale * (weight.empty() ? 1.0 : double{weight[i]});
  }
  return out;
}

double GeluTanh(double x) { return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))); }

std::vector<double> Rotate(const std::vector<float>& x, size_t pairs, double theta, double position) {
  std::vector<double> out(x.begin(), x.end());
  const size_t half = x.size() / 2;
  for (size_t j = 0; j < pairs; ++j) {
    const double angle = position * std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(x.size()));
    const double a = x[j], b = x[j + half];
    out[j] = a * std::cos(angle) - b * std::sin(angle);
    out[j + half] = b * std::cos(angle) + a * std::sin(angle);
  }
  return out;
}

std::vector<double> Attention(const AttentionProblem& p, const std::vector<float>& q, const std::vector<float>& k,
                              const std::vector<float>& v) {
  const size_t d = p.head_dim, rows = q.size() / (p.heads * d);
  std::vector<double> out(q.size(), 0.0);
  for (size_t r = 0; r < rows; ++r) {
    const int64_t position = p.first_position + static_cast<int64_t>(r);
    const int64_t first = p.window == 0 ? 0 : std::max<int64_t>(0, position - p.window + 1);
    for (size_t h = 0; h < p.heads; ++h) {
      const size_t kv_head = h / (p.heads / p.kv_heads);
      const auto row_of = [&](int64_t at) { return (static_cast<size_t>(at) * p.kv_heads + kv_head) * d; };
      std::vector<double> weight;
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t at = first; at <= position; ++at) {
        double score = 0;
        for (size_t c = 0; c < d; ++c) score += double{q[(r * p.heads + h) * d + c]} * k[row_of(at) + c];
        weight.push_back(score);
        top = std::max(top, score);
      }
      for (double& w : weight) sum += w = std::exp(w - top);
      for (int64_t at = first; at <= position; ++at) {
        for (size_t c = 0; c < d; ++c) {
          out[(r * p.heads + h) * d + c] += weight[static_cast<size_t>(at - first)] / sum * v[row_of(at) + c];
        }
      }
    }
  }
  return out;
}

}  // namespace lapidary::reference
