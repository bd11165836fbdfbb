#include "backends/gpu/products.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace lapidary::gpu {

Products::Products(ActivationTerms terms, int multiprocessors, bool measures_batch)
    : terms_(terms == ActivationTerms::kThree ? 3 : 1),
      multiprocessors_(multiprocessors),
      measures_batch_(measures_batch) {
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
  input_ = split_.data();
  return Terms(split_.data(), width);
}

RowOutput Products::Terms(uint16_t* hi, int64_t width) const {
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

MatmulBatchArgs Products::BatchArgs(const DeviceMatrix& w) const {
  return {static_cast<int32_t>(rows_), static_cast<int32_t>(terms_), input_, w.data, w.rows, w.cols};
}

void Products::NoteProduct(const DeviceMatrix& w, int64_t result_bytes) const {
  NoteBytes(2 * int64_t{w.cols} * (w.rows + (is_few() ? 2 : terms_) * rows_) + result_bytes * rows_ * w.rows);
}

void Products::CountFlops(const DeviceMatrix& w) {
  flops_ += 2.0 * static_cast<double>(rows_) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
}

void Products::RunFaster(const DeviceMatrix& w, Kind kind, gpuStream stream, const Work& batch, const Work& many) {
  if (!measures_batch_) return many();
  const auto [known, is_new] = batch_is_faster_.try_emplace({rows_, w.rows, w.cols, static_cast<int64_t>(kind)}, false);
  if (is_new) {
    known->second = ColdMilliseconds(stream, Workspace(), batch) <= ColdMilliseconds(stream, Workspace(), many);
  }
  known->second ? batch() : many();
}

RowInput Products::MultiplyMany(const char* what, const DeviceMatrix& w, Scratch<float>& y, gpuStream stream) {
  y.Reserve(terms_ * room_ * w.rows);
  many_.Run(stream, {terms_ * rows_, w.rows, w.cols, 0}, input_, w.data, y.data(), Workspace());
  NoteWork((std::string(what) + ", cuBLASLt").c_str(), stream);
  NoteProduct(w, 4 * terms_);
  if (terms_ == 1) return {y.data(), w.rows};
  return {y.data(), w.rows, y.data() + rows_ * w.rows, 2, rows_ * w.rows};
}

RowInput Products::Multiply(const char* what, const DeviceMatrix& w, Scratch<float>& y, gpuStream stream) {
  CountFlops(w);
  const int splits = MatmulBatchSplits(w.rows, w.cols, multiprocessors_);
  y.Reserve((measures_batch_ ? std::max<int64_t>(terms_, splits) : terms_) * room_ * w.rows);
  if (is_few()) {
    MultiplyFew(what, stream, FewArgs(w, y.data()));
    NoteProduct(w, 4);
    return {y.data(), w.rows};
  }
  RowInput out;
  const auto batch = [&] {
    MatmulBatch(what, stream, BatchArgs(w), splits, 0, y.data());
    NoteProduct(w, 4 * splits);
    out = {y.data(), w.rows, y.data() + rows_ * w.rows, splits - 1, rows_ * w.rows};
  };
  RunFaster(w, Kind::kStore, stream, batch, [&] { out = MultiplyMany(what, w, y, stream); });
  return out;
}

void Products::MultiplyGated(const char* what, const DeviceMatrix& w, RowCount rows, Scratch<float>& y,
                             gpuStream stream) {
  const int32_t width = w.rows / 2;
  const auto gate = [&](const RowInput& both, const RowOutput& out) {
    RowInput up = both;
    up.values += width;
    if (up.rest != nullptr) up.rest += width;
    GeluMul(stream, rows, width, both, up, out);
  };
  if (is_few()) {
    const RowInput both = Multiply(what, w, y, stream);
    return gate(both, Input(width));
  }
  CountFlops(w);
  gated_.Reserve(terms_ * room_ * width);
  const RowOutput out = Terms(gated_.data(), width);
  RunFaster(
      w, Kind::kGated, stream,
      [&] {
        MatmulBatchGated(what, stream, BatchArgs(w), out);
        NoteProduct(w, terms_);
      },
      [&] { gate(MultiplyMany(what, w, y, stream), out); });
  input_ = gated_.data();
}

void Products::MultiplyLogits(const DeviceMatrix& w, float softcap, RowCount rows, Scratch<float>& y,
                              gpuStream stream) {
  constexpr const char* what = "embed_tokens";
  CountFlops(w);
  y.Reserve(terms_ * room_ * w.rows);
  RunFaster(
      w, Kind::kLogits, stream,
      [&] {
        MatmulBatch(what, stream, BatchArgs(w), 1, softcap, y.data());
        NoteProduct(w, 4);
      },
      [&] { Softcap(stream, rows, w.rows, MultiplyMany(what, w, y, stream), softcap, y.data()); });
}

void Products::MultiplyHead(const DeviceMatrix& w, float softcap, Scratch<float>& y, int32_t* best, gpuStream stream) {
  CountFlops(w);
  y.Reserve(terms_ * room_ * w.rows);
  MatmulFewArgs args = FewArgs(w, y.data());
  args.softcap = softcap;
  args.best = cta_best_.data();
  MultiplyFewHead("embed_tokens", stream, args);
  NoteProduct(w, 4);
  BestOfCtas(stream, args.rows, cta_best_.data(), best);
}

}  // namespace lapidary::gpu
