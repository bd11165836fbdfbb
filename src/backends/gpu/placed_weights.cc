#include "backends/gpu/placed_weights.h"

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>

#include "backends/gpu/weight_upload.h"
#include "base/error.h"

namespace lapidary::gpu {
namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Lays out matrices and vectors in two walks over the same weights: without places for them it only counts.
class Placer {
 public:
  Placer(std::byte* matrices, std::byte* host_table) : matrices_(matrices), host_table_(host_table) {}

  // Several matrices of the same width, one directly after another.
  DeviceMatrix Matrices(const char* name, std::initializer_list<const Weight*> parts) {
    DeviceMatrix out;
    const size_t begin = matrix_bytes_;
    for (const Weight* part : parts) {
      if (!*part) continue;
      CheckType(name, *part);
      if (matrices_ != nullptr) {
        pieces_.push_back({matrices_ + matrix_bytes_, part->data, static_cast<size_t>(part->size_bytes())});
      }
      matrix_bytes_ += static_cast<size_t>(part->size_bytes());
      out.rows += static_cast<int32_t>(part->experts * part->rows);
      out.cols = static_cast<int32_t>(part->cols);
    }
    if (out.rows > 0 && matrices_ != nullptr) out.data = reinterpret_cast<const uint16_t*>(matrices_ + begin);
    matrix_bytes_ = Aligned(matrix_bytes_);
    return out;
  }

  DeviceMatrix HostTable(const char* name, const Weight& table) {
    if (!table) return {};
    CheckType(name, table);
    if (host_table_ != nullptr) std::memcpy(host_table_, table.data, static_cast<size_t>(table.size_bytes()));
    return {reinterpret_cast<const uint16_t*>(host_table_), static_cast<int32_t>(table.rows),
            static_cast<int32_t>(table.cols)};
  }

  // The place of a vector in floats; becomes a pointer once the vectors are on the device.
  void Vector(const float*& place, const Weight& weight, float factor = 1.0f) {
    if (!weight) return;
    vector_places_.push_back({&place, values_.size()});
    const std::vector<float> values = ReadVector(weight, factor);
    values_.insert(values_.end(), values.begin(), values.end());
    values_.resize(Aligned(values_.size() * sizeof(float)) / sizeof(float));
  }

  size_t matrix_bytes() const { return matrix_bytes_; }
  const std::vector<UploadPiece>& pieces() const { return pieces_; }

  DeviceMemory UploadVectors() {
    DeviceMemory memory(values_.size() * sizeof(float));
    Stream stream;
    CopyToDevice(memory.data(), values_.data(), values_.size() * sizeof(float), stream.get());
    Synchronize(stream.get());
    for (const auto& [place, offset] : vector_places_) *place = static_cast<const float*>(memory.data()) + offset;
    return memory;
  }

 private:
  static void CheckType(const char* name, const Weight& weight) {
    if (weight.dtype == DType::kBF16) return;
    Throw(ErrorKind::kUnsupported, std::string(name) + ": found " + std::string(NameOf(weight.dtype)) +
                                       ", wanted BF16 on a GPU; --device cpu takes F16 and F32 too");
  }

  struct VectorPlace {
    const float** place;
    size_t offset;
  };

  std::byte* matrices_;
  std::byte* host_table_;
  size_t matrix_bytes_ = 0;
  std::vector<UploadPiece> pieces_;
  std::vector<float> values_;
  std::vector<VectorPlace> vector_places_;
};

void PlaceLayer(Placer& placer, const LayerPlan& plan, const LayerWeights& w, int64_t hidden, PlacedLayer& out) {
  out.qkv = placer.Matrices("self_attn q_proj, k_proj, v_proj", {&w.q_proj, &w.k_proj, &w.v_proj});
  out.o_proj = placer.Matrices("self_attn.o_proj", {&w.o_proj});
  out.gate_up = placer.Matrices("mlp gate_proj, up_proj", {&w.gate_proj, &w.up_proj});
  out.down_proj = placer.Matrices("mlp.down_proj", {&w.down_proj});
  out.per_layer_input_gate = placer.Matrices("per_layer_input_gate", {&w.per_layer_input_gate});
  out.per_layer_projection = placer.Matrices("per_layer_projection", {&w.per_layer_projection});
  placer.Vector(out.input_layernorm, w.input_layernorm);
  placer.Vector(out.q_norm, w.q_norm);
  placer.Vector(out.k_norm, w.k_norm);
  placer.Vector(out.post_attention_layernorm, w.post_attention_layernorm);
  placer.Vector(out.pre_feedforward_layernorm, w.pre_feedforward_layernorm);
  placer.Vector(out.post_feedforward_layernorm, w.post_feedforward_layernorm);
  placer.Vector(out.post_per_layer_input_norm, w.post_per_layer_input_norm);
  out.layer_scalar = w.layer_scalar;
  if (!plan.has_experts) return;
  out.router_proj = placer.Matrices("router.proj", {&w.router_proj});
  out.experts_gate_up = placer.Matrices("experts.gate_up_proj", {&w.experts_gate_up});
  out.experts_down = placer.Matrices("experts.down_proj", {&w.experts_down});
  placer.Vector(out.router_scale, w.router_scale, 1.0f / std::sqrt(static_cast<float>(hidden)));
  placer.Vector(out.router_per_expert_scale, w.router_per_expert_scale);
  placer.Vector(out.post_feedforward_layernorm_1, w.post_feedforward_layernorm_1);
  placer.Vector(out.post_feedforward_layernorm_2, w.post_feedforward_layernorm_2);
  placer.Vector(out.pre_feedforward_layernorm_2, w.pre_feedforward_layernorm_2);
}

void Place(Placer& placer, const ModelPlan& plan, const ModelWeights& weights, bool table_on_host, PlacedWeights& out) {
  out.embed_tokens = placer.Matrices("embed_tokens", {&weights.embed_tokens});
  const char* table = "embed_tokens_per_layer";
  out.embed_tokens_per_layer = table_on_host ? placer.HostTable(table, weights.embed_tokens_per_layer)
                                             : placer.Matrices(table, {&weights.embed_tokens_per_layer});
  out.per_layer_model_projection = placer.Matrices("per_layer_model_projection", {&weights.per_layer_model_projection});
  placer.Vector(out.per_layer_projection_norm, weights.per_layer_projection_norm);
  placer.Vector(out.norm, weights.norm);
  out.layers.resize(plan.layers.size());
  for (const LayerPlan& layer : plan.layers) {
    const auto i = static_cast<size_t>(layer.index);
    PlaceLayer(placer, layer, weights.layers[i], plan.hidden(), out.layers[i]);
  }
}

}  // namespace

int64_t DeviceWeightBytes(const ModelPlan& plan, const ModelWeights& weights, bool table_on_host) {
  Placer count(nullptr, nullptr);
  PlacedWeights ignored;
  Place(count, plan, weights, table_on_host, ignored);
  return static_cast<int64_t>(count.matrix_bytes());
}

PlacedWeights PlaceWeights(const ModelPlan& plan, const ModelWeights& weights, bool table_on_host,
                           const ProgressFn& progress) {
  PlacedWeights out;
  out.matrices = DeviceMemory(static_cast<size_t>(DeviceWeightBytes(plan, weights, table_on_host)));
  if (table_on_host && weights.embed_tokens_per_layer) {
    out.host_table = PinnedMemory(static_cast<size_t>(weights.embed_tokens_per_layer.size_bytes()));
  }
  Placer placer(static_cast<std::byte*>(out.matrices.data()), static_cast<std::byte*>(out.host_table.data()));
  Place(placer, plan, weights, table_on_host, out);
  UploadWeights(placer.pieces(), progress);
  out.vectors = placer.UploadVectors();
  return out;
}

}  // namespace lapidary::gpu
