#include "synth/synth.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "model/model_plan.h"
#include "model/model_weights.h"

namespace lapidary {
namespace {

constexpr std::string_view kSeedPrefix = "model.language_model.";
// Bytes that one thread makes and writes at a time, cut at multiples of it in the file: whole huge pages, so that the
// page cache can hold them as such. Decoding from a file written tensor by tensor is 4 % slower (ext4, Linux 6.18, two
// cores of Zen 4 with 60 GB/s, 2026-12-01).
constexpr int64_t kPieceBytes = int64_t{8} << 20;

struct SynthTensor {
  std::string name;       // as stored
  std::string seed_name;  // as seeded
  std::vector<int64_t> shape;
  float mean = 0, amp = 0;
  int64_t elements = 0;
  int64_t first_byte = 0;  // in the body
};

int64_t EndByte(const SynthTensor& tensor) {
  return tensor.first_byte + tensor.elements * static_cast<int64_t>(sizeof(BF16));
}

// Mean and amplitude of a tensor by the last part of its name. A standard deviation s of the uniform distribution means
// an amplitude of s * sqrt(3).
std::pair<double, double> Distribution(std::string_view name, const std::vector<int64_t>& shape, const Config& config) {
  if (name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
  const std::string_view leaf = name.substr(name.rfind('.') + 1);
  const double root3 = std::sqrt(3.0);
  if (leaf == "embed_tokens") return {0.0, root3 / std::sqrt(static_cast<double>(config.hidden_size))};
  if (leaf == "embed_tokens_per_layer") {
    return {0.0, root3 / std::sqrt(static_cast<double>(config.hidden_size_per_layer_input))};
  }
  if (leaf == "layer_scalar") return {0.9, 0.1};
  if (leaf == "k_norm") return {0.125, 0.03};
  if (leaf == "norm") return {6.0, 1.0};  // the final norm: sets the spread of the logits
  const bool norm = leaf.ends_with("norm") || leaf.find("layernorm") != std::string_view::npos;
  if (norm || leaf == "scale" || leaf == "per_expert_scale") return {1.0, 0.25};
  return {0.0, root3 / std::sqrt(static_cast<double>(shape.back()))};  // linear layers, [.., out, in]
}

// What a checkpoint of `config` stores, by name, as safetensors' own writer orders tensors of one type.
std::vector<SynthTensor> StoredTensors(const Config& config) {
  ModelPlan plan = MakeModelPlan(config);
  for (LayerPlan& layer : plan.layers) layer.writes_kv = true;
  std::vector<SynthTensor> tensors;
  for (const WeightSpec& spec : RequiredWeights(plan)) {
    SynthTensor tensor;
    tensor.name = spec.name;
    tensor.seed_name = std::string(kSeedPrefix) + spec.name.substr(config.tensor_prefix.size());
    tensor.shape = spec.shape;
    const auto [mean, amp] = Distribution(spec.name, spec.shape, config);
    tensor.mean = static_cast<float>(mean);
    tensor.amp = static_cast<float>(amp);
    tensor.elements = 1;
    for (const int64_t dimension : spec.shape) tensor.elements *= dimension;
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const SynthTensor& a, const SynthTensor& b) { return a.name < b.name; });
  int64_t byte = 0;
  for (SynthTensor& tensor : tensors) {
    tensor.first_byte = byte;
    byte += tensor.elements * static_cast<int64_t>(sizeof(BF16));
  }
  return tensors;
}

// Header length and header, as the file begins.
std::string FileHead(const std::vector<SynthTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  for (const SynthTensor& tensor : tensors) {
    header += ',';
    header += Json(tensor.name).dump();
    header += R"(:{"dtype":"BF16","shape":)";
    header += Json(tensor.shape).dump();
    header += R"(,"data_offsets":)";
    header += Json({tensor.first_byte, EndByte(tensor)}).dump();
    header += '}';
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  std::string head(sizeof(length), '\0');
  std::memcpy(head.data(), &length, sizeof(length));
  return head + header;
}

[[noreturn]] void FailWrite(const std::string& path, int code) {
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG || code == ENOMEM;
  Throw(full ? ErrorKind::kOutOfMemory : ErrorKind::kInvalidArgument,
        "cannot write " + path + ": " + std::strerror(code));
}

// A file that appears under its name only when Commit is called, and leaves nothing behind otherwise.
class PendingFile {
 public:
  PendingFile(const std::string& path, int64_t size_bytes) : path_(path), part_(path + ".part") {
    fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) FailWrite(part_, errno);
    // Space is claimed now, so that a full disk is known before gigabytes are written, where the file system can.
    if (size_bytes > 0 && ::fallocate(fd_, 0, 0, size_bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
      const int code = errno;
      Discard();
      FailWrite(part_, code);
    }
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (fd_ >= 0) Discard();
  }

  // May be called by several threads at once.
  void Write(const void* data, size_t size_bytes, int64_t offset) const {
    const char* from = static_cast<const char*>(data);
    while (size_bytes > 0) {
      const ssize_t done = ::pwrite(fd_, from, size_bytes, offset);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) FailWrite(part_, done < 0 ? errno : ENOSPC);
      from += done;
      size_bytes -= static_cast<size_t>(done);
      offset += done;
    }
  }

  void Commit() {
    const int closed = ::close(std::exchange(fd_, -1));
    if (closed != 0 || ::rename(part_.c_str(), path_.c_str()) != 0) {
      const int code = errno;
      ::unlink(part_.c_str());
      FailWrite(path_, code);
    }
  }

 private:
  void Discard() {
    ::close(std::exchange(fd_, -1));
    ::unlink(part_.c_str());
  }

  std::string path_, part_;
  int fd_ = -1;
};

// Fills the body of `file` piece by piece on all threads.
class BodyWriter {
 public:
  BodyWriter(const PendingFile& file, int64_t body_offset, const ProgressFn& progress)
      : file_(file), body_offset_(body_offset), progress_(progress) {}

  void Write(const std::vector<SynthTensor>& tensors, int threads) {
    tensors_ = tensors;
    body_bytes_ = EndByte(tensors.back());
    const auto total_bytes = static_cast<uint64_t>(body_bytes_);
    ThreadPool pool(threads);
    pool.Run([&](int thread) { Work(thread); });
    if (failure_) std::rethrow_exception(failure_);
    if (progress_) progress_("synth", total_bytes, total_bytes);
  }

 private:
  void Work(int thread) {
    try {
      std::vector<BF16> buffer(kPieceBytes / sizeof(BF16));
      for (int64_t next = next_++; next * kPieceBytes < body_offset_ + body_bytes_ && !stop_; next = next_++) {
        WritePiece(next * kPieceBytes, buffer);
        if (thread == 0 && progress_) progress_("synth", done_bytes_, static_cast<uint64_t>(body_bytes_));
      }
    } catch (...) {
      stop_ = true;
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  // The body's part of the piece of the file from `file_byte`.
  void WritePiece(int64_t file_byte, std::vector<BF16>& buffer) {
    const int64_t begin = std::max<int64_t>(0, file_byte - body_offset_);
    const int64_t end = std::min(body_bytes_, file_byte + kPieceBytes - body_offset_);
    const auto after =
        std::upper_bound(tensors_.begin(), tensors_.end(), begin,
                         [](int64_t byte, const SynthTensor& tensor) { return byte < tensor.first_byte; });
    for (auto tensor = after - 1; tensor != tensors_.end() && tensor->first_byte < end; ++tensor) {
      const int64_t from = std::max(begin, tensor->first_byte), to = std::min(end, EndByte(*tensor));
      SynthFill(tensor->seed_name, tensor->mean, tensor->amp, Elements(from - tensor->first_byte),
                std::span(buffer).subspan(static_cast<size_t>(Elements(from - begin)),
                                          static_cast<size_t>(Elements(to - from))));
    }
    file_.Write(buffer.data(), static_cast<size_t>(end - begin), body_offset_ + begin);
    done_bytes_ += static_cast<uint64_t>(end - begin);
  }

  static int64_t Elements(int64_t bytes) { return bytes / static_cast<int64_t>(sizeof(BF16)); }

  const PendingFile& file_;
  const int64_t body_offset_;
  const ProgressFn& progress_;
  std::span<const SynthTensor> tensors_;  // in the order of the body
  int64_t body_bytes_ = 0;
  std::atomic<uint64_t> done_bytes_ = 0;
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

bool Exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// True when `path` begins with `head` and is of the given size.
bool IsSameModel(const std::string& path, const std::string& head, int64_t size_bytes) {
  const MappedFile file = MappedFile::Open(path);
  return file.bytes().size() == static_cast<size_t>(size_bytes) && file.bytes().size() >= head.size() &&
         std::memcmp(file.bytes().data(), head.data(), head.size()) == 0;
}

[[noreturn]] void RefuseToOverwrite(const std::filesystem::path& path) {
  Throw(ErrorKind::kInvalidArgument,
        path.string() + ": found a file of another checkpoint, wanted an empty folder or the same one");
}

void WriteText(const std::string& path, const std::string& text) {
  PendingFile file(path, 0);
  file.Write(text.data(), text.size(), 0);
  file.Commit();
}

}  // namespace

std::string SynthShape(const std::string& shape) {
  if (shape != "e2b") {
    Throw(ErrorKind::kInvalidArgument, "shape: found \"" + Printable(shape) + "\", wanted e2b or a config.json");
  }
  Json layer_types = Json::array();
  for (int i = 0; i < 35; ++i) layer_types.push_back(i % 5 == 4 ? "full_attention" : "sliding_attention");
  // Sizes of google/gemma-4-E2B's text model.
  Json config = Json::parse(R"({
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "dtype": "bfloat16",
    "vocab_size": 262144, "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
    "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "tie_word_embeddings": true, "attention_bias": false,
    "sliding_window": 512, "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "attention_k_eq_v": false, "num_kv_shared_layers": 20,
    "enable_moe_block": false, "use_double_wide_mlp": true,
    "rope_parameters": {
      "full_attention": {"rope_theta": 1000000.0, "rope_type": "proportional", "partial_rotary_factor": 0.25},
      "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}})");
  config["layer_types"] = layer_types;
  return config.dump(1) + "\n";
}

void WriteSynthCheckpoint(const std::string& config_json, const std::string& folder, int threads,
                          const ProgressFn& progress) {
  const std::vector<SynthTensor> tensors = StoredTensors(ParseConfig(config_json, "config.json"));
  const std::string head = FileHead(tensors);
  const int64_t body_bytes = EndByte(tensors.back());
  const int64_t size_bytes = static_cast<int64_t>(head.size()) + body_bytes;
  const std::filesystem::path base(folder), model = base / "model.safetensors", config = base / "config.json";
  std::error_code failed;
  std::filesystem::create_directories(base, failed);
  if (failed) FailWrite(folder, failed.value());
  if (Exists(config) && ReadFile(config.string()) != config_json) RefuseToOverwrite(config);
  if (Exists(base / "model.safetensors.index.json")) RefuseToOverwrite(base / "model.safetensors.index.json");
  if (!Exists(model)) {
    PendingFile file(model.string(), size_bytes);
    file.Write(head.data(), head.size(), 0);
    BodyWriter(file, static_cast<int64_t>(head.size()), progress).Write(tensors, threads);
    file.Commit();
  } else if (!IsSameModel(model.string(), head, size_bytes)) {
    RefuseToOverwrite(model);
  }
  if (!Exists(config)) WriteText(config.string(), config_json);
}

}  // namespace lapidary
