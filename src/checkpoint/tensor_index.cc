#include "checkpoint/tensor_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace lapidary {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors bodies are little-endian and used in place");

constexpr size_t kLengthBytes = 8;
// The longest header that the format's own reader accepts.
constexpr size_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxIndexBytes = 100'000'000;

struct StoredType {
  std::string_view name;
  uint64_t bits;
};

// Every type that safetensors knows (huggingface/safetensors, safetensors/src/tensor.rs): other parts of a checkpoint
// may use those that the text model cannot.
constexpr std::array<StoredType, 22> kStoredTypes = {{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

// Reads the tensors that one header describes.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> body, const std::string& path) : body_(body), path_(path) {}

  std::vector<StoredTensor> Read(std::string_view header) {
    const Json json = ParseJson(header, "header of " + path_);
    if (!json.is_object()) Corrupt("header", std::string("found JSON ") + json.type_name() + ", wanted an object");
    std::vector<StoredTensor> tensors;
    tensors.reserve(json.size());
    for (const auto& [name, entry] : json.items()) {
      if (name != "__metadata__") tensors.push_back(ReadTensor(name, entry));
    }
    std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    CheckCover(tensors);
    return tensors;
  }

 private:
  [[noreturn]] void Corrupt(const std::string& what, const std::string& problem) const {
    Throw(ErrorKind::kCorruptFile, path_ + ": " + what + ": " + problem);
  }

  static std::string Label(const std::string& name) { return "tensor \"" + Printable(name) + "\""; }

  StoredTensor ReadTensor(const std::string& name, const Json& entry) const {
    if (!entry.is_object()) Corrupt(Label(name), std::string("found JSON ") + entry.type_name() + ", wanted an object");
    StoredTensor tensor;
    tensor.name = name;
    const Json& type = Member(name, entry, "dtype");
    if (!type.is_string()) Corrupt(Label(name), "dtype: found " + Printable(type.dump()) + ", wanted a string");
    tensor.stored_type = type.get<std::string>();
    const Json& shape = Member(name, entry, "shape");
    if (!shape.is_array()) Corrupt(Label(name), "shape: found " + Printable(shape.dump()) + ", wanted an array");
    for (const Json& dimension : shape) {
      tensor.shape.push_back(static_cast<int64_t>(Number(name, "shape", dimension)));
    }
    const Json& offsets = Member(name, entry, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) {
      Corrupt(Label(name), "data_offsets: found " + Printable(offsets.dump()) + ", wanted [begin, end]");
    }
    const uint64_t begin = Number(name, "data_offsets", offsets[0]), end = Number(name, "data_offsets", offsets[1]);
    if (begin > end || end > body_.size()) {
      Corrupt(Label(name), "data_offsets: found [" + std::to_string(begin) + ", " + std::to_string(end) +
                               "], wanted a range inside the " + std::to_string(body_.size()) + " bytes of the body");
    }
    tensor.bytes = body_.subspan(begin, end - begin);
    CheckSize(tensor);
    return tensor;
  }

  const Json& Member(const std::string& name, const Json& entry, const char* key) const {
    const auto found = entry.find(key);
    if (found == entry.end()) Corrupt(Label(name), std::string("found no ") + key);
    return *found;
  }

  uint64_t Number(const std::string& name, const char* key, const Json& value) const {
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) {
      Corrupt(Label(name), std::string(key) + ": found " + Printable(value.dump()) +
                               ", wanted a whole number from 0 to " + std::to_string(kMax));
    }
    return value.get<uint64_t>();
  }

  void CheckSize(const StoredTensor& tensor) const {
    const auto type = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                   [&](const StoredType& known) { return known.name == tensor.stored_type; });
    if (type == kStoredTypes.end()) {
      Throw(ErrorKind::kUnsupported, path_ + ": " + Label(tensor.name) + ": found the unknown dtype \"" +
                                         Printable(tensor.stored_type) + "\", wanted one of safetensors, such as BF16");
    }
    uint64_t bits = type->bits;
    bool overflow = false;
    for (const int64_t dimension : tensor.shape) {
      overflow |= __builtin_mul_overflow(bits, static_cast<uint64_t>(dimension), &bits);
    }
    // A zero dimension makes the product 0, whatever overflowed before it.
    const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    if (empty) bits = 0;
    if ((overflow && !empty) || bits % 8 != 0 || bits / 8 != tensor.bytes.size()) {
      Corrupt(Label(tensor.name), "found " + std::to_string(tensor.bytes.size()) + " bytes, wanted those of " +
                                      tensor.stored_type + " " + Json(tensor.shape).dump());
    }
  }

  // The format wants the body covered from its first byte to its last, without holes or overlaps.
  void CheckCover(const std::vector<StoredTensor>& tensors) const {
    size_t covered = 0;
    for (const StoredTensor& tensor : tensors) {
      const auto begin = static_cast<size_t>(tensor.bytes.data() - body_.data());
      if (begin != covered) {
        Corrupt(Label(tensor.name), "found it at byte " + std::to_string(begin) + " of the body, wanted byte " +
                                        std::to_string(covered) + ": tensors must not overlap or leave gaps");
      }
      covered += tensor.bytes.size();
    }
    if (covered != body_.size()) {
      Corrupt("body", "found " + std::to_string(body_.size()) + " bytes, wanted the " + std::to_string(covered) +
                          " that the tensors take");
    }
  }

  std::span<const std::byte> body_;
  const std::string& path_;
};

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Also true for what cannot be looked at: opening it tells why.
bool Exists(const std::filesystem::path& path) {
  std::error_code hidden;
  return std::filesystem::exists(path, hidden) || hidden;
}

}  // namespace

int64_t StoredTensor::elements() const {
  int64_t product = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

std::vector<StoredTensor> ParseSafetensors(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.size() < kLengthBytes) {
    Throw(ErrorKind::kCorruptFile, path + ": found " + std::to_string(bytes.size()) +
                                       " bytes, wanted a safetensors file that begins with an 8-byte header length");
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const size_t most = std::min(bytes.size() - kLengthBytes, kMaxHeaderBytes);
  if (length > most) {
    Throw(ErrorKind::kCorruptFile, path + ": found a header length of " + std::to_string(length) +
                                       " bytes, wanted at most " + std::to_string(most) + " (file of " +
                                       std::to_string(bytes.size()) + " bytes)");
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (header.empty() || header.front() != '{') {
    Throw(ErrorKind::kCorruptFile, path + ": found a header that does not begin with '{', wanted a JSON object");
  }
  return HeaderReader(bytes.subspan(kLengthBytes + length), path).Read(header);
}

WeightMap ParseWeightMap(std::string_view json_text, const std::string& path) {
  const Json json = ParseJson(json_text, path);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    Throw(ErrorKind::kCorruptFile, path + ": found no weight_map, wanted an object of tensor names and shard files");
  }
  WeightMap weights;
  weights.reserve(map->size());
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      Throw(ErrorKind::kCorruptFile, path + ": weight_map: tensor \"" + Printable(tensor) + "\": found " +
                                         Printable(shard.dump()) + ", wanted the name of a file in the same folder");
    }
    weights.emplace_back(tensor, shard.get<std::string>());
  }
  return weights;
}

TensorIndex TensorIndex::Open(const std::string& folder) {
  const std::filesystem::path base(folder);
  const std::filesystem::path single = base / "model.safetensors", index = base / "model.safetensors.index.json";
  TensorIndex result;
  if (Exists(single)) {
    result.AddFile(single.string());
    result.IndexNames();
    return result;
  }
  if (!Exists(index)) {
    Throw(ErrorKind::kNotFound, folder + (Exists(base) ? ": found neither model.safetensors nor its index, "
                                                         "model.safetensors.index.json"
                                                       : ": no such folder"));
  }
  result.OpenShards(folder, index.string());
  return result;
}

void TensorIndex::OpenShards(const std::string& folder, const std::string& index) {
  const std::filesystem::path base(folder);
  const WeightMap weights = ParseWeightMap(ReadFile(index, kMaxIndexBytes), index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weights) shards.insert(shard);
  for (const std::string& shard : shards) {
    if (!Exists(base / shard)) {
      Throw(ErrorKind::kNotFound, index + ": the shard " + Printable(shard) + " that it names is missing");
    }
    AddFile((base / shard).string());
  }
  IndexNames();
  for (const auto& [tensor, shard] : weights) {
    const StoredTensor* found = Find(tensor);
    const std::string wanted = (base / shard).string();
    if (found == nullptr || files_[found->file].path() != wanted) {
      Throw(ErrorKind::kCorruptFile, index + ": tensor \"" + Printable(tensor) + "\": found it in " +
                                         (found == nullptr ? "no shard" : files_[found->file].path()) +
                                         ", wanted it in " + wanted);
    }
  }
}

void TensorIndex::AddFile(const std::string& path) {
  files_.push_back(MappedFile::Open(path));
  for (StoredTensor& tensor : ParseSafetensors(files_.back().bytes(), path)) {
    tensor.file = files_.size() - 1;
    tensors_.push_back(std::move(tensor));
  }
}

void TensorIndex::IndexNames() {
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [entry, inserted] = by_name_.emplace(tensors_[i].name, i);
    if (!inserted) {
      Throw(ErrorKind::kCorruptFile, "tensor \"" + Printable(tensors_[i].name) + "\": found it both in " +
                                         files_[tensors_[entry->second].file].path() + " and in " +
                                         files_[tensors_[i].file].path());
    }
  }
}

const StoredTensor* TensorIndex::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace lapidary
