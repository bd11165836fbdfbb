#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"

namespace lapidary {

// One stored tensor: row-major, outermost dimension first, bytes inside a mapping owned by the TensorIndex.
struct StoredTensor {
  std::string name;
  std::string stored_type;     // as the file spells it, e.g. "BF16", "I64"
  std::vector<int64_t> shape;  // each >= 0; [] is a scalar
  std::span<const std::byte> bytes;
  size_t file = 0;  // index into TensorIndex::files()

  int64_t elements() const;
};

// All tensors of a checkpoint folder: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
// Knows no model. Immutable after Open, any thread may read; everything is valid as long as the index lives.
class TensorIndex {
 public:
  // Maps the files and checks every header: length inside the file, valid JSON, known types, shapes that match their
  // byte ranges, ranges that cover the body without overlap or gap, no name twice, shards complete as the index lists
  // them. Throws Error: kNotFound (folder, file or shard), kCorruptFile, kUnsupported (a type that safetensors does not
  // know); with the file, the tensor, found and wanted.
  static TensorIndex Open(const std::string& folder);

  // nullptr when absent.
  const StoredTensor* Find(std::string_view name) const;
  // In file order.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::vector<MappedFile>& files() const { return files_; }

 private:
  void OpenShards(const std::string& folder, const std::string& index);
  void AddFile(const std::string& path);
  // Fills by_name_, once tensors_ is complete.
  void IndexNames();

  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

// Parses one safetensors file held in `bytes` (exposed for tests and the fuzzer). `path` names it in errors.
// In the order of the bytes, which the spans point at. Throws Error kCorruptFile, kUnsupported.
std::vector<StoredTensor> ParseSafetensors(std::span<const std::byte> bytes, const std::string& path);

// Tensor name and the file name of its shard.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

// Parses the text of a `model.safetensors.index.json` (exposed for tests and the fuzzer). Shards are names of files in
// the index's own folder. Throws Error kCorruptFile.
WeightMap ParseWeightMap(std::string_view json_text, const std::string& path);

}  // namespace lapidary
