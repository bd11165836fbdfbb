#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/tensor_index.h"

namespace lapidary {

inline std::string MiniFolder(const std::string& name) {
  return std::string(LAPIDARY_SOURCE_DIR "/tests/data/") + name;
}

// A folder of its own, removed with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lapidary_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) == nullptr ? "" : pattern;
    if (path_.empty()) ADD_FAILURE() << "cannot make " << pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(File(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

// A safetensors file of the given header text and body.
inline std::string SafetensorsFile(const std::string& header, const std::string& body) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + body;
}

// A safetensors file of `tensors`, in that order, on 8-byte bounds as far as their sizes keep them.
inline std::string SafetensorsFile(const std::vector<StoredTensor>& tensors) {
  Json header = Json::object();
  std::string body;
  for (const StoredTensor& tensor : tensors) {
    const size_t begin = body.size();
    body.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    header[tensor.name] = {
        {"dtype", tensor.stored_type}, {"shape", tensor.shape}, {"data_offsets", {begin, body.size()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return SafetensorsFile(text, body);
}

// The tensors of `index` whose names pass `keep`.
inline std::vector<StoredTensor> Select(const TensorIndex& index,
                                        const std::function<bool(const std::string& name)>& keep) {
  std::vector<StoredTensor> selected;
  for (const StoredTensor& tensor : index.tensors()) {
    if (keep(tensor.name)) selected.push_back(tensor);
  }
  return selected;
}

// Expects `action` to throw an Error of `kind` whose one line contains every one of `parts`.
inline void ExpectError(ErrorKind kind, const std::vector<std::string>& parts, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "found no error, wanted one with \"" << (parts.empty() ? "" : parts[0]) << "\"";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), kind) << message;
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << "\n" << part;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 1000u);
  }
}

}  // namespace lapidary
