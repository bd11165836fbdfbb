#include "backends/gpu/products.h"

#include <algorithm>
#include <numeric>

namespace lapidary::gpu {

Products::Products(ActivationTerms terms) : terms_(terms == ActivationTerms::kThree ? 3 : 1) {
  std::array<int32_t, kMostCount + 1> counts{};
  std::iota(counts.begin(), counts.end(), 0);
  counts_.Reserve(static_cast<int64_t>(counts.size()));
  CopyToDevice(counts_.data(), counts.data(), sizeof(counts), nullptr);
  Synchronize(nullptr);
  cta_best_.Reserve(int64_t{MatmulFewCtas()} * kFewRows);
  workspace_.Reserve(static_cast<int64_t>(kMatmulWorkspaceBytes));
}

void Products::SetRows(int64_t rows, int64_t room) {
  rows_ = rows;
  room_ = std::max({rows, room, int64_t{kFewRows}});
}

RowOutput Products::Input(int64_t width) {
  if (is_few()) {
    values_.Reserve(kFewRows * width);
    return {values_.data(), nullptr, nullptr};
  }
  split_.Reserve(terms_ * room_ * width);
  uint16_t* hi = split_.data();
  if (terms_ == 1) return {nullptr, hi};
  return {nullptr, hi, hi + rows_ * width, hi + 2 * rows_ * width};
}

MatmulFewArgs Products::FewArgs(const DeviceMatrix& w, float* y) const {
  MatmulFewArgs args;
  args.rows = static_cast<int32_t>(rows_);
  args.w = {w.data, w.rows};
  args.k = w.cols;
  args.x = values_.data();
  args.y = y;
  return args;
}

RowInput Products::Multiply(const char* what, const DeviceMatrix& w, Scratch<float>& y, gpuStream stream) {
  flops_ += 2.0 * static_cast<double>(rows_) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
  y.Reserve(terms_ * room_ * w.rows);
  if (is_few()) {
    MultiplyFew(what, stream, FewArgs(w, y.data()));
    return {y.data(), w.rows, nullptr};
  }
  const MatmulShape shape{terms_ * rows_, w.rows, w.cols, 0};
  many_.Run(stream, shape, split_.data(), w.data, y.data(),
            {workspace_.data(), static_cast<size_t>(workspace_.size())});
  if (terms_ == 1) return {y.data(), w.rows};
  return {y.data(), w.rows, y.data() + rows_ * w.rows, y.data() + 2 * rows_ * w.rows};
}

void Products::MultiplyHead(const DeviceMatrix& w, float softcap, float* y, int32_t* best, gpuStream stream) {
  flops_ += 2.0 * static_cast<double>(rows_) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
  MatmulFewArgs args = FewArgs(w, y);
  args.softcap = softcap;
  args.best = cta_best_.data();
  MultiplyFewHead("embed_tokens", stream, args);
  BestOfCtas(stream, args.rows, cta_best_.data(), best);
}

}  // namespace lapidary::gpu
