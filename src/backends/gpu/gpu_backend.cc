#include "backends/gpu/gpu_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/batch_graphs.h"
#include "backends/gpu/decode_pass.h"
#include "backends/gpu/forward_pass.h"
#include "backends/gpu/kv_storage.h"
#include "backends/gpu/placed_weights.h"
#include "backends/gpu/places.h"
#include "backends/gpu/sample_input.h"
#include "backends/gpu/scratch.h"
#include "backends/gpu/step_input.h"
#include "backends/step_check.h"
#include "base/error.h"
#include "checkpoint/tensor_index.h"
#include "kernels/gpu/bandwidth_probe.h"
#include "kernels/gpu/matmul.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/sampling.h"
#include "model/config.h"
#include "model/model_weights.h"

namespace lapidary {
namespace gpu {
namespace {

// Left free beside the weights when it is decided where the table goes: cache and activations.
constexpr int64_t kRoomBesideWeights = int64_t{4} << 30;

DeviceInfo RequireDevice() {
  std::string why;
  std::optional<DeviceInfo> device = FindDevice(&why);
  if (!device) Throw(ErrorKind::kUnsupported, "device cuda: " + why);
  return *std::move(device);
}

bool TableOnHost(PerLayerTable where, const ModelPlan& plan, const ModelWeights& weights, const DeviceInfo& device) {
  if (where != PerLayerTable::kAuto) return where == PerLayerTable::kHost;
  return DeviceWeightBytes(plan, weights, false) + kRoomBesideWeights > device.free_bytes;
}

// Few-row steps: a recorded graph of launches, made again when the step's buffers move.
class DecodeGraph {
 public:
  DecodeGraph(const ModelPlan& plan, const PlacedWeights& weights, const KvStorage& storage, const DeviceInfo& device,
              int64_t max_positions)
      : pass_(plan, weights, storage, device, max_positions) {}

  void Run(const StepInput& input, int rows, gpuStream stream) {
    Recorded& recorded = recorded_[static_cast<size_t>(rows - 1)];
    if (recorded.graph.empty()) pass_.Launch(input, rows, stream);  // the first time, kernels are set up
    if (recorded.graph.empty() || recorded.version != input.version()) {
      recorded.graph = Graph::Capture(stream, [&] { pass_.Launch(input, rows, stream); });
      recorded.version = input.version();
    }
    recorded.graph.Launch(stream);
  }

  // As BatchGraphs::Time.
  void Time(const StepInput& input, int rows, GraphTimes& times, gpuStream stream) {
    const Graph graph = Graph::Capture(stream, [&] {
      times.Start(stream);
      pass_.Launch(input, rows, stream);
    });
    for (int i = 0; i < 2; ++i) graph.Launch(stream);
    Synchronize(stream);
  }

  // Where the time of its one launch goes, apart from other times, which the marks would lengthen.
  std::vector<KernelTime> TimeStages(const StepInput& input, int rows, gpuStream stream) {
    for (int i = 0; i < 2; ++i) pass_.LaunchMarked(input, rows, stream);
    Synchronize(stream);
    return pass_.Stages();
  }

  const DecodePass& pass() const { return pass_; }

 private:
  struct Recorded {
    Graph graph;
    int version = 0;
  };

  DecodePass pass_;
  std::array<Recorded, kFewRows> recorded_;  // for each number of rows
};

class GpuBackend final : public Backend {
 public:
  GpuBackend(const std::string& folder, const GpuBackendOptions& options, const ProgressFn& progress)
      : device_(RequireDevice()), options_(options), plan_(MakeModelPlan(LoadConfig(folder))) {
    const TensorIndex index = TensorIndex::Open(folder);
    const ModelWeights weights = BindWeights(index, plan_);
    weights_ = PlaceWeights(plan_, weights, TableOnHost(options.per_layer_table, plan_, weights, device_), progress);
    weight_bytes_per_step_ = SummarizeUse(index, plan_).per_token_bytes;
  }

  const ModelPlan& plan() const override { return plan_; }
  std::string Description() const override { return "cuda (" + device_.name + ")"; }
  int64_t WeightBytesPerStep() const override { return weight_bytes_per_step_; }

  void AllocateKv(const std::array<int32_t, kKvGroups>& blocks, DType type) override {
    CheckKvType(type);
    storage_ = KvStorage(plan_.kv, blocks, type);
    const int64_t full = int64_t{blocks[static_cast<size_t>(AttentionType::kFull)]} * kKvBlockTokens;
    const int64_t longest = plan_.config.max_position_embeddings;
    const int64_t positions = full > 0 ? std::min(full, longest) : longest;
    const ForwardPass::Setup setup{device_, options_.bf16_activations ? ActivationTerms::kOne : ActivationTerms::kThree,
                                   positions, 0};
    forward_.emplace(plan_, weights_, storage_, setup);
    batches_.emplace(plan_, weights_, storage_, setup);
    if (DecodePass::Takes(plan_) && DecodeStepFits(device_.shared_bytes_per_block))
      decode_.emplace(plan_, weights_, storage_, device_, positions);
    results_ = PinnedMemory((DecodePass::kResults + kFewRows) * sizeof(int32_t));
    logits_ = PinnedMemory(static_cast<size_t>(kFewRows * plan_.vocab()) * sizeof(float));
  }

  void Forward(const StepBatch& batch, std::span<float> logits, TapSink* taps) override {
    Run(batch, {logits, {}}, taps);
  }

  void ForwardGreedy(const StepBatch& batch, std::span<int32_t> best, TapSink* taps) override {
    Run(batch, {{}, best}, taps);
  }

  bool Samples() const override { return plan_.vocab() <= kMaxVocab; }
  void ForwardSample(const StepBatch& batch, std::span<const RowSampling> rows, std::span<int32_t> chosen) override {
    CheckRoom("ways of sampling", rows.size(), batch.logit_rows.size());
    sampling_ = rows;
    Run(batch, {{}, chosen, &sample_input_}, nullptr);
  }

  bool CopyKvBlock(int group, int32_t from, int32_t to) override {
    storage_.CopyBlock(static_cast<size_t>(group), from, to, stream_.get());
    return true;
  }

  double LastStepFlops() const override { return flops_; }
  int64_t PreferredStepTokens() const override { return 2048; }
  MachineRates MeasureMachine() override {
    if (product_rate_ == 0) product_rate_ = MeasureProductRate();
    return {MeasureReadBandwidth() * 1e9, product_rate_, "bfloat16 products"};
  }
  std::vector<KernelTime> TimeKernels(const StepBatch& batch) override;
  std::optional<DeviceMemoryUse> MemoryUse() const override;

 private:
  void Run(const StepBatch& batch, const StepOutput& output, TapSink* taps) {
    CheckStep(plan_, {storage_.blocks(0), storage_.blocks(1)}, batch);
    const size_t rows = batch.logit_rows.size();
    if (output.best.empty()) CheckRoom("logits", output.logits.size(), rows * static_cast<size_t>(plan_.vocab()));
    if (output.logits.empty()) CheckRoom("best ids", output.best.size(), rows);
    if (decode_ && taps == nullptr && batch.ids.size() <= size_t{kFewRows} && batch.stop_early) {
      RunFew(batch, output);
    } else if (taps == nullptr && output.logits.empty() && BatchGraphs::Takes(batch)) {
      SendSampling(batch, output, false);
      batches_->Run(batch, output.sampling, output.best, stream_.get());
      flops_ = WeightFlops(batch);
    } else {
      SendSampling(batch, output, false);
      many_input_.Send(batch, stream_.get());
      forward_->Run(batch, many_input_, output, taps, stream_.get());
      flops_ = forward_->flops();
    }
  }

  void RunFew(const StepBatch& batch, const StepOutput& output);
  // `in_step`: rows of the step are chosen from, of which the logit rows are some; else the logit rows alone.
  void SendSampling(const StepBatch& batch, const StepOutput& output, bool in_step);
  // Chooses from the logits of the few-row pass.
  void SampleFew(const StepBatch& batch);
  double WeightFlops(const StepBatch& batch) const {
    return 2.0 * static_cast<double>(weight_bytes_per_step_ / 2) * static_cast<double>(batch.ids.size());
  }

  DeviceInfo device_;
  GpuBackendOptions options_;
  ModelPlan plan_;
  PlacedWeights weights_;
  int64_t weight_bytes_per_step_ = 0;
  Stream stream_;
  KvStorage storage_;
  StepInput few_input_, many_input_;
  SampleInput sample_input_;
  std::span<const RowSampling> sampling_;  // of the step
  Scratch<float> sample_logits_;           // [kFewRows, vocab]
  Scratch<std::byte> sample_workspace_;
  Scratch<int32_t> sampled_;  // [kFewRows]
  std::optional<ForwardPass> forward_;
  std::optional<BatchGraphs> batches_;
  std::optional<DecodeGraph> decode_;
  PinnedMemory results_, logits_;
  double flops_ = 0;
  double product_rate_ = 0;  // 0: not measured yet
};

// Those of the keys and values that a step's attention reads.
int64_t AttentionBytes(const ModelPlan& plan, const KvStorage& storage, std::span<const int32_t> positions) {
  int64_t elements = 0;
  for (const LayerPlan& layer : plan.layers) {
    for (const int32_t position : positions) {
      const int64_t seen = layer.window == 0 ? position + 1 : std::min<int64_t>(position + 1, layer.window);
      elements += 2 * seen * layer.kv_heads * layer.head_dim;
    }
  }
  return elements * (storage.is_bf16() ? 2 : 4);
}

// The launches of what `time` records and runs, those of the same name as one.
std::vector<KernelTime> TimeLaunches(const std::function<void(GraphTimes&)>& time) {
  GraphTimes times;
  time(times);
  std::vector<KernelTime> kernels;
  for (const GraphTimes::Entry& entry : times.Read()) {
    auto kernel = std::ranges::find(kernels, entry.name, &KernelTime::name);
    if (kernel == kernels.end()) kernel = kernels.insert(kernels.end(), {.name = entry.name});
    ++kernel->launches;
    kernel->seconds += entry.ms * 1e-3;
    kernel->bytes += entry.bytes;
  }
  return kernels;
}

std::vector<KernelTime> GpuBackend::TimeKernels(const StepBatch& batch) {
  CheckStep(plan_, {storage_.blocks(0), storage_.blocks(1)}, batch);
  if (!BatchGraphs::Takes(batch)) return {};
  std::vector<int32_t> ignored(batch.ids.size());
  Run(batch, {{}, ignored}, nullptr);  // all is set up, and the step is sound
  const auto rows = static_cast<int>(batch.ids.size());
  const bool few = decode_ && rows <= kFewRows;
  std::vector<KernelTime> kernels = TimeLaunches([&](GraphTimes& times) {
    if (few) {
      decode_->Time(few_input_, rows, times, stream_.get());
    } else {
      batches_->Time(batch, times, stream_.get());
    }
  });
  if (few) {
    const std::vector<KernelTime> stages = decode_->TimeStages(few_input_, rows, stream_.get());
    const auto step = std::ranges::find(kernels, "decode_step", &KernelTime::name);
    kernels.insert(step == kernels.end() ? step : step + 1, stages.begin(), stages.end());
  }
  const auto attention = std::ranges::find(kernels, "attention_decode", &KernelTime::name);
  if (attention != kernels.end()) attention->bytes = AttentionBytes(plan_, storage_, batch.positions);
  return kernels;
}

std::optional<DeviceMemoryUse> GpuBackend::MemoryUse() const {
  DeviceMemoryUse use;
  use.weights = static_cast<int64_t>(weights_.matrices.size_bytes() + weights_.vectors.size_bytes());
  for (size_t g = 0; g < kKvGroups; ++g) use.kv += storage_.blocks(g) * storage_.block_bytes(g);
  if (const std::optional<DeviceInfo> now = FindDevice(nullptr)) use.used = device_.free_bytes - now->free_bytes;
  return use;
}

void GpuBackend::SendSampling(const StepBatch& batch, const StepOutput& output, bool in_step) {
  if (output.sampling == nullptr) return;
  std::vector<int32_t> places(batch.logit_rows.begin(), batch.logit_rows.end());
  if (!in_step) std::iota(places.begin(), places.end(), 0);
  sample_input_.Send(sampling_, places, stream_.get());
}

void GpuBackend::SampleFew(const StepBatch& batch) {
  const int64_t vocab = plan_.vocab();
  const auto rows = static_cast<int64_t>(batch.ids.size());
  sample_logits_.Reserve(kFewRows * vocab);
  sample_workspace_.Reserve(static_cast<int64_t>(SampleWorkspaceBytes(vocab, kFewRows)));
  sampled_.Reserve(kFewRows);
  CopyOnDevice(sample_logits_.data(), decode_->pass().logits(), static_cast<size_t>(rows * vocab) * sizeof(float),
               stream_.get());
  SampleArgs args = sample_input_.Args(0);
  args.logits = {sample_logits_.data(), vocab, vocab, few_input_.count()};
  args.workspace = sample_workspace_.data();
  args.ids = sampled_.data();
  Sample(stream_.get(), args, static_cast<int>(rows), false);
}

void GpuBackend::RunFew(const StepBatch& batch, const StepOutput& output) {
  const gpuStream stream = stream_.get();
  few_input_.Send(batch, stream);
  SendSampling(batch, output, true);
  decode_->Run(few_input_, static_cast<int>(batch.ids.size()), stream);
  const DecodePass& pass = decode_->pass();
  int32_t* results = static_cast<int32_t*>(results_.data());
  float* logits = static_cast<float*>(logits_.data());
  const auto vocab = static_cast<size_t>(plan_.vocab());
  CopyToHost(results, pass.results(), DecodePass::kResults * sizeof(int32_t), stream);
  int32_t* sampled = results + DecodePass::kResults;
  if (output.sampling != nullptr) {
    SampleFew(batch);
    CopyToHost(sampled, sampled_.data(), batch.ids.size() * sizeof(int32_t), stream);
  }
  if (!output.logits.empty()) {
    CopyToHost(logits, pass.logits(), batch.ids.size() * vocab * sizeof(float), stream);
  }
  Synchronize(stream);
  if (const auto stuck = static_cast<uint32_t>(results[DecodePass::kStuck]); stuck != 0) {
    Throw(ErrorKind::kDevice, "the GPU's blocks waited too long for each other, in " + NameOfStuck(stuck));
  }
  if (const int32_t place = results[DecodePass::kBadPlace]; place != 0) {
    Throw(ErrorKind::kDevice,
          NameOfPlace(place) + ": found a value that is not finite, wanted finite numbers; the weights may be damaged");
  }
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const auto row = static_cast<size_t>(batch.logit_rows[i]);
    if (!output.best.empty()) output.best[i] = std::max((output.sampling == nullptr ? results : sampled)[row], 0);
    if (!output.logits.empty()) std::memcpy(&output.logits[i * vocab], logits + row * vocab, vocab * sizeof(float));
  }
  flops_ = WeightFlops(batch);
}

}  // namespace
}  // namespace gpu

std::string WhyNoGpu() {
  std::string why;
  return gpu::FindDevice(&why) ? std::string() : why;
}

std::unique_ptr<Backend> LoadGpuBackend(const std::string& folder, const GpuBackendOptions& options,
                                        const ProgressFn& progress) {
  return std::make_unique<gpu::GpuBackend>(folder, options, progress);
}

}  // namespace lapidary
