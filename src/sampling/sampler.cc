#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.h"

namespace lapidary {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// A weight below exp(-kNegligible) of the best, even 262,144 times over, is lost in the rounding of a double sum.
constexpr double kNegligible = 50.0;

void CheckRange(const char* name, double value, bool ok, const char* wanted) {
  if (!std::isfinite(value) || !ok) {
    Throw(ErrorKind::kInvalidArgument, std::string(name) + ": found " + std::to_string(value) + ", wanted " + wanted);
  }
}

void CheckId(const char* name, int32_t id, int64_t vocab) {
  if (id < 0 || id >= vocab) {
    Throw(ErrorKind::kInvalidArgument, std::string(name) + ": found token id " + std::to_string(id) +
                                           ", wanted one in [0, " + std::to_string(vocab) + ")");
  }
}

// Higher logit first, lower id among equals.
bool Better(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

bool IsPlainGreedy(const SamplingParams& params) {
  return params.temperature == 0 && params.repetition_penalty == 1 && params.presence_penalty == 0 &&
         params.frequency_penalty == 0 && params.logit_bias.empty() && params.suppress_tokens.empty();
}

void CheckSamplingParams(const SamplingParams& params, int64_t vocab) {
  CheckRange("temperature", params.temperature, params.temperature >= 0, "a finite number >= 0");
  CheckRange("top_k", static_cast<double>(params.top_k), params.top_k >= 0, "a whole number >= 0");
  CheckRange("top_p", params.top_p, params.top_p > 0 && params.top_p <= 1, "a number in (0, 1]");
  CheckRange("min_p", params.min_p, params.min_p >= 0 && params.min_p <= 1, "a number in [0, 1]");
  CheckRange("repetition_penalty", params.repetition_penalty, params.repetition_penalty > 0, "a finite number > 0");
  CheckRange("presence_penalty", params.presence_penalty, true, "a finite number");
  CheckRange("frequency_penalty", params.frequency_penalty, true, "a finite number");
  for (const auto& [id, bias] : params.logit_bias) {
    CheckId("logit_bias", id, vocab);
    CheckRange("logit_bias", bias, true, "a finite number");
  }
  std::vector<int32_t> suppressed = params.suppress_tokens;
  for (const int32_t id : suppressed) CheckId("suppress_tokens", id, vocab);
  std::sort(suppressed.begin(), suppressed.end());
  const auto distinct = std::unique(suppressed.begin(), suppressed.end()) - suppressed.begin();
  if (distinct >= vocab) {
    Throw(ErrorKind::kInvalidArgument,
          "suppress_tokens: found all " + std::to_string(vocab) + " tokens, wanted at least one left");
  }
}

double UniformDraw(uint64_t seed, uint64_t counter) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t bits = Mix(Mix(seed + kGolden) + (counter + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

int32_t Argmax(std::span<const float> logits) {
  constexpr size_t kBlock = 4096, kLanes = 16;
  float best = kNever;
  size_t best_id = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const float> block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    float lanes[kLanes];
    std::fill(std::begin(lanes), std::end(lanes), kNever);
    const size_t whole = block.size() / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) lanes[j] = block[i + j] > lanes[j] ? block[i + j] : lanes[j];
    }
    for (size_t i = whole; i < block.size(); ++i) lanes[0] = block[i] > lanes[0] ? block[i] : lanes[0];
    const float block_best = *std::max_element(std::begin(lanes), std::end(lanes));
    if (block_best > best) {
      best = block_best;
      best_id = begin + static_cast<size_t>(std::find(block.begin(), block.end(), best) - block.begin());
    }
  }
  return static_cast<int32_t>(best_id);
}

Sampler::Sampler(const SamplingParams& params, std::span<const int32_t> prompt, int64_t vocab) : params_(params) {
  CheckSamplingParams(params, vocab);
  const auto size = static_cast<size_t>(vocab);
  if (params.presence_penalty != 0 || params.frequency_penalty != 0) answer_count_.assign(size, 0);
  if (params.repetition_penalty != 1) {
    seen_.assign(size, false);
    for (const int32_t id : prompt) {
      CheckId("prompt", id, vocab);
      if (!seen_[static_cast<size_t>(id)]) touched_.push_back(id);
      seen_[static_cast<size_t>(id)] = true;
    }
  }
}

void Sampler::Accept(int32_t token) {
  ++accepted_;
  if (answer_count_.empty() && seen_.empty()) return;
  const auto id = static_cast<size_t>(token);
  const bool known = (!answer_count_.empty() && answer_count_[id] > 0) || (!seen_.empty() && seen_[id]);
  if (!known) touched_.push_back(token);
  if (!answer_count_.empty()) ++answer_count_[id];
  if (!seen_.empty()) seen_[id] = true;
}

void Sampler::ApplyPenalties(std::span<float> logits) const {
  for (const int32_t id : params_.suppress_tokens) logits[static_cast<size_t>(id)] = kNever;
  for (const auto& [id, bias] : params_.logit_bias) logits[static_cast<size_t>(id)] += static_cast<float>(bias);
  for (const int32_t token : touched_) {
    const auto id = static_cast<size_t>(token);
    double value = logits[id];
    if (!seen_.empty() && seen_[id]) {
      value = value > 0 ? value / params_.repetition_penalty : value * params_.repetition_penalty;
    }
    if (!answer_count_.empty() && answer_count_[id] > 0) {
      value -= params_.presence_penalty + params_.frequency_penalty * answer_count_[id];
    }
    logits[id] = static_cast<float>(value);
  }
}

void Sampler::AppendTouched(std::vector<TouchedId>& out) const {
  for (const int32_t token : touched_) {
    const auto id = static_cast<size_t>(token);
    out.push_back({token, answer_count_.empty() ? 0 : answer_count_[id], !seen_.empty() && seen_[id]});
  }
}

int32_t Sampler::Choose(std::span<float> logits) {
  ApplyPenalties(logits);
  return params_.temperature == 0 ? Argmax(logits) : Draw(logits);
}

double Sampler::Weight(float logit, float top) const {
  return std::exp((static_cast<double>(logit) - top) / params_.temperature);
}

void Sampler::CollectTopK(std::span<const float> logits) {
  const auto k = static_cast<size_t>(params_.top_k);
  const size_t room = std::max<size_t>(4 * k, 1024);
  float threshold = kNever;  // of the k-th best so far: a later id must beat it, as ties go to the lower id
  const auto keep_best = [&] {
    if (candidates_.size() <= k) return;
    const auto kth = candidates_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(candidates_.begin(), kth, candidates_.end(), Better);
    threshold = kth->first;
    candidates_.resize(k);
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > threshold)) continue;
    candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
    if (candidates_.size() == room) keep_best();
  }
  keep_best();
}

void Sampler::CollectAbove(std::span<const float> logits, double threshold) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= threshold && logits[i] != kNever) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
  }
}

// Leaves the best candidates, in order, whose weights first reach top_p of all that may be drawn.
void Sampler::CutToTopP(std::span<const float> logits, float top) {
  double total = 0;
  if (!candidates_.empty()) {
    // In order of rank, so that the sum does not depend on how top-k selected them.
    std::sort(candidates_.begin(), candidates_.end(), Better);
    for (const auto& candidate : candidates_) total += Weight(candidate.first, top);
  } else {
    const double negligible = top - kNegligible * params_.temperature;
    for (const float logit : logits) {
      if (logit >= negligible) total += Weight(logit, top);
    }
    // Tokens this unlikely, all of them together, weigh less than what top-p cuts off.
    const double bound = (1 - params_.top_p) / static_cast<double>(logits.size()) * total;
    CollectAbove(logits, std::max(negligible, top + params_.temperature * std::log(bound) - 1e-3));
  }
  double sum = 0;
  size_t kept = 0;
  for (size_t ordered = 0; kept < candidates_.size() && sum < params_.top_p * total; ++kept) {
    if (kept == ordered) {
      // Few are needed as a rule: the best so many are brought to the front, then put in order.
      const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(ordered);
      ordered = std::min(candidates_.size(), std::max<size_t>(128, 8 * ordered));
      const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(ordered);
      if (end != candidates_.end()) std::nth_element(begin, end, candidates_.end(), Better);
      std::sort(begin, end, Better);
    }
    sum += Weight(candidates_[kept].first, top);
  }
  candidates_.resize(kept);
}

int32_t Sampler::DrawCandidate(float top) {
  weights_.resize(candidates_.size());
  double total = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) total += weights_[i] = Weight(candidates_[i].first, top);
  const double target = UniformDraw(params_.seed, static_cast<uint64_t>(accepted_)) * total;
  double sum = 0;
  size_t last = 0;  // guards against the sum falling short of the target by rounding
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] == 0) continue;
    last = i;
    sum += weights_[i];
    if (target < sum) break;
  }
  return candidates_[last].second;
}

int32_t Sampler::Draw(std::span<const float> logits) {
  const int32_t best = Argmax(logits);
  const float top = logits[static_cast<size_t>(best)];
  candidates_.clear();
  const bool use_top_k = params_.top_k > 0 && params_.top_k < static_cast<int64_t>(logits.size());
  // Relative to the best token min-p does not depend on what top-k and top-p removed: it is a bound on the logit.
  const double min_logit = params_.min_p > 0 ? top + params_.temperature * std::log(params_.min_p) : kNever;
  if (use_top_k) CollectTopK(logits);
  if (params_.top_p < 1) {
    CutToTopP(logits, top);
  } else if (use_top_k) {
    std::sort(candidates_.begin(), candidates_.end(), Better);
  } else {
    CollectAbove(logits, std::max(min_logit, top - kNegligible * params_.temperature));
  }
  std::erase_if(candidates_, [&](const auto& candidate) { return candidate.first < min_logit; });
  return candidates_.empty() ? best : DrawCandidate(top);
}

}  // namespace lapidary
