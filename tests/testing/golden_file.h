#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/tensor_index.h"

namespace lapidary {

// Tolerances of the reference itself: how far float32 in another order of summation may lie.
inline constexpr float kLogitTolerance = 2e-3f;
inline constexpr double kHiddenTolerance = 1e-4;  // relative, by norm
inline constexpr double kGreedyMargin = 2e-3;     // greedy ids bind up to the first margin below this

// Reference results: tensors of a safetensors file and the prompts of the JSON file beside it.
class GoldenFile {
 public:
  GoldenFile(const std::string& tensors, const std::string& json)
      : file_(MappedFile::Open(tensors)), meta_(ParseJson(ReadFile(json), json)) {
    for (const StoredTensor& t : ParseSafetensors(file_.bytes(), file_.path())) tensors_.emplace(t.name, t);
  }

  bool Has(const std::string& name) const { return tensors_.count(name) > 0; }
  std::vector<float> Tensor(const std::string& name) const {
    const StoredTensor& t = tensors_.at(name);
    std::vector<float> out(static_cast<size_t>(t.elements()));
    std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
    return out;
  }
  const Json& Prompts() const { return meta_["prompts"]; }

 private:
  MappedFile file_;
  Json meta_;
  std::map<std::string, StoredTensor> tensors_;
};

// The greedy ids of a prompt that bind: those before the first margin under kGreedyMargin.
inline std::vector<int32_t> BindingIds(const Json& prompt) {
  auto ids = prompt["greedy"].get<std::vector<int32_t>>();
  const auto margins = prompt["margin"].get<std::vector<double>>();
  size_t binding = 0;
  while (binding < margins.size() && margins[binding] >= kGreedyMargin) ++binding;
  ids.resize(std::min(ids.size(), binding));
  return ids;
}

// The largest |a - b|; a NaN counts as the largest, different sizes as infinitely far.
inline float LargestDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

// |a - b| / |b| by Euclidean norm; different sizes are infinitely far.
inline double RelativeDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace lapidary
