#include "kernels/cpu/elementwise.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep, comes before highway.h

#include "hwy/highway.h"

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lapidary::cpu {
namespace HWY_NAMESPACE {

// Calls f(i, load, store) for whole vectors, then once for what is left through a padded buffer: every element goes
// through the same instructions wherever it stands.
template <typename F>
HWY_INLINE void Map(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n, float* out, const F& f) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(hn::LoadU(df, a + i), b == nullptr ? hn::Zero(df) : hn::LoadU(df, b + i)), df, out + i);
  }
  if (i == n) return;
  HWY_ALIGN float x[HWY_MAX_BYTES / sizeof(float)] = {}, y[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(x, a + i, (n - i) * sizeof(float));
  if (b != nullptr) std::memcpy(y, b + i, (n - i) * sizeof(float));
  hn::Store(f(hn::Load(df, x), hn::Load(df, y)), df, x);
  std::memcpy(out + i, x, (n - i) * sizeof(float));
}

float SumOfSquares(const float* HWY_RESTRICT x, size_t n) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  VF sum[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    HWY_UNROLL(4)
    for (size_t j = 0; j < 4; ++j) {
      const VF v = hn::LoadU(df, x + i + j * lanes);
      sum[j] = hn::MulAdd(v, v, sum[j]);
    }
  }
  for (; i + lanes <= n; i += lanes) {
    const VF v = hn::LoadU(df, x + i);
    sum[0] = hn::MulAdd(v, v, sum[0]);
  }
  float total = hn::GetLane(hn::SumOfLanes(df, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
  for (; i < n; ++i) total += x[i] * x[i];
  return total;
}

float InverseRms(const float* x, size_t n, float eps) {
  return 1.0f / std::sqrt(SumOfSquares(x, n) / static_cast<float>(n) + eps);
}

void RmsNormRows(const float* x, const float* weight, float eps, size_t rows, size_t n, float* out) {
  const DF df;
  for (size_t r = 0; r < rows; ++r) {
    const float* row = x + r * n;
    const VF scale = hn::Set(df, InverseRms(row, n, eps));
    if (weight == nullptr) {
      Map(row, nullptr, n, out + r * n, [&](VF v, VF) HWY_ATTR { return hn::Mul(v, scale); });
    } else {
      Map(row, weight, n, out + r * n, [&](VF v, VF w) HWY_ATTR { return hn::Mul(hn::Mul(v, scale), w); });
    }
  }
}

void AddRmsNormRows(const float* y, const float* weight, float eps, size_t rows, size_t n, float* h) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  for (size_t r = 0; r < rows; ++r, y += n, h += n) {
    const float inverse = InverseRms(y, n, eps);
    const VF scale = hn::Set(df, inverse);
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      const VF normed = hn::Mul(hn::Mul(hn::LoadU(df, y + i), scale), hn::LoadU(df, weight + i));
      hn::StoreU(hn::Add(hn::LoadU(df, h + i), normed), df, h + i);
    }
    for (; i < n; ++i) h[i] = h[i] + y[i] * inverse * weight[i];
  }
}

// gelu_tanh(x) = 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): saturates at both ends.
// Source: transformers 5.17, activations.py, gelu_pytorch_tanh.
HWY_INLINE VF GeluTanh(VF x) {
  const DF df;
  const VF cube = hn::Mul(hn::Mul(x, x), x);
  const VF u = hn::Mul(hn::Set(df, 0.7978845608028654f), hn::MulAdd(hn::Set(df, 0.044715f), cube, x));
  const VF exponent = hn::Min(hn::Mul(hn::Set(df, -2.0f), u), hn::Set(df, 88.0f));
  return hn::Div(x, hn::Add(hn::Set(df, 1.0f), hn::Exp(df, exponent)));
}

void GeluMulRows(float* gate, const float* up, size_t rows, size_t n, size_t up_stride) {
  for (size_t r = 0; r < rows; ++r) {
    Map(gate + r * n, up + r * up_stride, n, gate + r * n, [](VF g, VF u) HWY_ATTR { return hn::Mul(GeluTanh(g), u); });
  }
}

void SoftcapRow(float* x, size_t n, float cap) {
  const DF df;
  const VF c = hn::Set(df, cap);
  Map(x, nullptr, n, x, [&](VF v, VF) HWY_ATTR { return hn::Mul(c, hn::Tanh(df, hn::Div(v, c))); });
}

void ScaleRow(float* x, size_t n, float factor) {
  const VF f = hn::Set(DF(), factor);
  Map(x, nullptr, n, x, [&](VF v, VF) HWY_ATTR { return hn::Mul(v, f); });
}

bool AllFiniteRow(const float* HWY_RESTRICT x, size_t n) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  // x * 0 is 0 for finite numbers and NaN otherwise.
  VF zero = hn::Zero(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) zero = hn::MulAdd(hn::LoadU(df, x + i), hn::Zero(df), zero);
  float rest = hn::GetLane(hn::SumOfLanes(df, zero));
  for (; i < n; ++i) rest += x[i] * 0.0f;
  return rest == 0.0f;
}

void RotateHeads(float* x, size_t heads, size_t head_dim, const float* HWY_RESTRICT cos, const float* HWY_RESTRICT sin,
                 size_t pairs) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  for (size_t h = 0; h < heads; ++h) {
    float* HWY_RESTRICT a = x + h * head_dim;
    float* HWY_RESTRICT b = a + head_dim / 2;
    size_t j = 0;
    for (; j + lanes <= pairs; j += lanes) {
      const VF va = hn::LoadU(df, a + j), vb = hn::LoadU(df, b + j), c = hn::LoadU(df, cos + j),
               s = hn::LoadU(df, sin + j);
      hn::StoreU(hn::Sub(hn::Mul(va, c), hn::Mul(vb, s)), df, a + j);
      hn::StoreU(hn::Add(hn::Mul(vb, c), hn::Mul(va, s)), df, b + j);
    }
    for (; j < pairs; ++j) {
      const float va = a[j], vb = b[j];
      a[j] = va * cos[j] - vb * sin[j];
      b[j] = vb * cos[j] + va * sin[j];
    }
  }
}

void LoadRowOfF16(const void* row, size_t n, float* out) {
  const auto* from = static_cast<const hwy::float16_t*>(row);
  const DF df;
  const hn::Rebind<hwy::float16_t, DF> dh;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::PromoteTo(df, hn::LoadU(dh, from + i)), df, out + i);
  if (i == n) return;
  HWY_ALIGN hwy::float16_t padded[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
  std::memcpy(static_cast<void*>(padded), static_cast<const void*>(from + i), (n - i) * sizeof(uint16_t));
  hn::StoreU(hn::PromoteTo(df, hn::LoadU(dh, padded)), df, wide);
  std::memcpy(out + i, wide, (n - i) * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace lapidary::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lapidary::cpu {

HWY_EXPORT(RmsNormRows);
HWY_EXPORT(AddRmsNormRows);
HWY_EXPORT(GeluMulRows);
HWY_EXPORT(SoftcapRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(AllFiniteRow);
HWY_EXPORT(RotateHeads);
HWY_EXPORT(LoadRowOfF16);

void RmsNorm(const float* x, const float* weight, float eps, size_t rows, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormRows)(x, weight, eps, rows, n, out);
}

void AddRmsNorm(const float* y, const float* weight, float eps, size_t rows, size_t n, float* h) {
  HWY_DYNAMIC_DISPATCH(AddRmsNormRows)(y, weight, eps, rows, n, h);
}

void GeluMul(float* gate, const float* up, size_t rows, size_t n, size_t up_stride) {
  HWY_DYNAMIC_DISPATCH(GeluMulRows)(gate, up, rows, n, up_stride);
}

void Softcap(float* x, size_t n, float cap) { HWY_DYNAMIC_DISPATCH(SoftcapRow)(x, n, cap); }

void Scale(float* x, size_t n, float factor) { HWY_DYNAMIC_DISPATCH(ScaleRow)(x, n, factor); }

void LoadRow(const void* row, DType dtype, size_t n, float factor, float* out) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, row, n * sizeof(float));
      break;
    case DType::kF16:
      HWY_DYNAMIC_DISPATCH(LoadRowOfF16)(row, n, out);
      break;
    case DType::kBF16: {
      const auto* from = static_cast<const BF16*>(row);
      for (size_t i = 0; i < n; ++i) out[i] = ToFloat(from[i]);
      break;
    }
  }
  Scale(out, n, factor);
}

void Rotate(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin, size_t pairs) {
  HWY_DYNAMIC_DISPATCH(RotateHeads)(x, heads, head_dim, cos, sin, pairs);
}

bool AllFinite(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(AllFiniteRow)(x, n); }

}  // namespace lapidary::cpu
#endif  // HWY_ONCE
