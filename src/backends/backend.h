#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "kv/block_table.h"
#include "model/model_plan.h"
#include "sampling/sampler.h"

namespace lapidary {

// What one step computes. Rows of one sequence stand together, with rising positions, and everything before the first
// of them is already in the cache. Spans are borrowed for the call.
struct StepBatch {
  std::span<const int32_t> ids;                                   // [rows], in [0, vocab)
  std::span<const int32_t> positions;                             // [rows]
  std::span<const int32_t> sequences;                             // [rows], in [0, tables.size())
  std::span<const std::array<BlockTableView, kKvGroups>> tables;  // [sequences]; cover every position of the step
  std::span<const int32_t> logit_rows;                            // [logits], rising rows whose logits are wanted
  // Rows whose logits nobody wants stop after the last layer that writes K/V. False only to check that it is harmless.
  bool stop_early = true;
};

// How the token that follows a row is chosen. Borrowed for the call.
struct RowSampling {
  const SamplingParams* params = nullptr;
  uint64_t draw = 0;                   // its number: tokens accepted before
  std::span<const TouchedId> touched;  // the history, as far as penalties count it
};

// Points at which a backend shows its activations; every backend uses the same names.
enum class Tap : uint8_t {
  kEmbedding,       // [rows, hidden] scaled embedding
  kPerLayerInputs,  // [rows, layers * per_layer_width]
  kAttention,       // [rows, heads * head_dim] before o_proj
  kLayer,           // [rows, hidden] after the layer
  kFinalNorm,       // [rows, hidden]
};

class TapSink {
 public:
  virtual ~TapSink() = default;
  // `data` [rows, width] is valid during the call. layer is -1 where the tap has none.
  virtual void OnTap(Tap tap, int layer, std::span<const float> data, int64_t rows, int64_t width) = 0;
};

// What the machine under a backend can do, measured. 0: not known.
struct MachineRates {
  double read_bytes_per_s = 0;  // from memory
  double flops_per_s = 0;       // multiplications and additions of the kind named by flops_kind
  const char* flops_kind = "float32 FMA";
};

// Part of a step: all launches of one kernel for one purpose. Or a stage of such a kernel.
struct KernelTime {
  std::string name;
  bool is_stage = false;  // of the kernel before it, in whose time its own is
  int64_t launches = 0;
  double seconds = 0;  // of all
  int64_t bytes = 0;   // that they read and write; 0: not known
};

// Bytes of a device's memory.
struct DeviceMemoryUse {
  int64_t weights = 0, kv = 0;
  int64_t used = 0;  // in all since the backend was made
};

// The seam between host and device: one whole model's step. Load happens in the constructor of an implementation.
// Results of a row depend on that row's sequence alone: not on other rows, on how a prompt is cut into steps, or on the
// number of threads. Calls must come from one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const ModelPlan& plan() const = 0;
  // "cpu (AVX3, 2 threads)": for people.
  virtual std::string Description() const = 0;
  // Bytes of weights that one decode step reads for a batch of any size; experts count as top_k of them.
  virtual int64_t WeightBytesPerStep() const = 0;

  // Makes room for `blocks[g]` K/V blocks in every group g, stored as `type` (kF32 or kBF16). Called once, before the
  // first step. Memory is taken as blocks are first written. Throws Error kOutOfMemory.
  virtual void AllocateKv(const std::array<int32_t, kKvGroups>& blocks, DType type) = 0;

  // Runs the step: K/V of every row is written to the cache; `logits` [batch.logit_rows.size(), vocab] is filled.
  // `taps` may be nullptr. Throws Error: kInvalidArgument (an id or position out of range), kDevice (a hidden state
  // that is not finite, naming the layer); the cache rows of this step are then undefined, all others untouched.
  virtual void Forward(const StepBatch& batch, std::span<float> logits, TapSink* taps) = 0;
  // As Forward, but only the id of the largest logit of each row, the lowest id among equals, leaves the backend:
  // `best` [batch.logit_rows.size()].
  virtual void ForwardGreedy(const StepBatch& batch, std::span<int32_t> best, TapSink* taps) = 0;

  // Whether ForwardSample may be called.
  virtual bool Samples() const { return false; }
  // As Forward, but only the tokens leave the backend that Sampler::Choose would choose from the logits, as `rows`
  // [batch.logit_rows.size()] say: `chosen` [batch.logit_rows.size()]. Sums of weights may round differently, so that a
  // draw that comes within 1e-13 of its bound may go the other way.
  virtual void ForwardSample(const StepBatch& /*batch*/, std::span<const RowSampling> /*rows*/,
                             std::span<int32_t> /*chosen*/) {
    Throw(ErrorKind::kUnsupported, Description() + " does not choose tokens");
  }

  // Copies the K/V of one block of `group` to another; the next step sees it. False, with nothing done, where the
  // backend cannot: what the copy would have saved is then computed.
  virtual bool CopyKvBlock(int /*group*/, int32_t /*from*/, int32_t /*to*/) { return false; }

  // Prompt tokens of one step that keep the device busy.
  virtual int64_t PreferredStepTokens() const { return 256; }
  // Threads of the host that a step computes on; 0: none, it runs elsewhere.
  virtual int HostThreads() const { return 0; }
  // Measures for a second or so.
  virtual MachineRates MeasureMachine() { return {}; }

  // Where the time of a decode step goes: runs the step, of one row or more for each sequence, once more, with its
  // kernels one after another. In order of first launch; empty where the backend cannot tell. Throws as Forward does.
  virtual std::vector<KernelTime> TimeKernels(const StepBatch& /*batch*/) { return {}; }
  // Nothing where the backend's memory is the host's.
  virtual std::optional<DeviceMemoryUse> MemoryUse() const { return std::nullopt; }

  // Floating-point operations that the last step really executed in matrix products and attention.
  virtual double LastStepFlops() const = 0;
};

}  // namespace lapidary
