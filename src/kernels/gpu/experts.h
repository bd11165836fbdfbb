#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/runtime.h"

// The experts of a layer: each row goes through its top_k of them, weighted. The choices (row, expert) are sorted by
// expert on the device, so that one launch runs the products of all experts on tensor cores, tile by tile; the host
// never learns who was chosen. A row's result does not depend on the other rows.
namespace lapidary::gpu {

struct ExpertShape {
  int experts = 0;  // at most kMaxExperts
  int top_k = 0;    // at most experts
  int hidden = 0;   // a multiple of 8
  int width = 0;    // of an expert, a multiple of 8
};
inline constexpr int kMaxExperts = 512;

// Device memory that the launchers below hand on to each other, for at most max_rows rows.
class ExpertWorkspace {
 public:
  // Throws Error: kUnsupported (a shape beyond the limits), kOutOfMemory.
  ExpertWorkspace(const ExpertShape& shape, int32_t max_rows);
  ~ExpertWorkspace();
  ExpertWorkspace(ExpertWorkspace&&) noexcept;
  ExpertWorkspace& operator=(ExpertWorkspace&&) noexcept;
  // Bytes of it, about max_rows * top_k * (4 * hidden + 6 * width).
  static size_t SizeBytes(const ExpertShape& shape, int32_t max_rows);

  struct Parts;  // see expert_parts.h
  const Parts& parts() const { return *parts_; }
  const ExpertShape& shape() const { return shape_; }

 private:
  ExpertShape shape_;
  DeviceMemory memory_;
  std::unique_ptr<Parts> parts_;
};

// softmax over the scores [rows, experts], the top_k best (ties to the lower expert), renormalised to sum 1, times
// per_expert_scale [experts]; then sorts the choices. Reads 4 * experts a row (12 with three terms), writes 16 * top_k.
void RouteExperts(gpuStream stream, RowCount rows, RowInput scores, const float* per_expert_scale,
                  const ExpertWorkspace& workspace);

struct ExpertWeights {
  const uint16_t* gate_up = nullptr;  // [experts, 2 * width, hidden] bf16: the gate's rows, then up's
  const uint16_t* down = nullptr;     // [experts, hidden, width] bf16
};

// out[r] = sum over the choices of row r, likeliest first, of weight * down(gelu_tanh(gate x[r]) * up x[r]).
// `rows` as they were routed. x: three bf16 terms [rows, hidden], or one: then the products between are one, too.
// out [rows, hidden]. Reads the weights of each chosen expert once for each tile of 16 to 128 of its rows, x top_k
// times, and moves (12 width + 8 hidden) * top_k bytes a row between its kernels.
void RunExperts(gpuStream stream, RowCount rows, const RowTerms& x, const ExpertWeights& weights,
                const ExpertWorkspace& workspace, float* out);

}  // namespace lapidary::gpu
