#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>

namespace lapidary {
namespace {

double LogSumExp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

bool Better(const IdLogprob& a, const IdLogprob& b) {
  return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
}

// The `count` best logits, in order.
std::vector<IdLogprob> BestLogits(std::span<const float> logits, size_t count) {
  std::vector<IdLogprob> best;  // a heap with the worst in front
  if (count == 0) return best;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) continue;
    // Ids rise, so that an equal one behind a full heap never belongs to the best.
    if (best.size() == count && !(logits[i] > best.front().logprob)) continue;
    if (best.size() == count) {
      std::pop_heap(best.begin(), best.end(), Better);
      best.pop_back();
    }
    best.push_back({static_cast<int32_t>(i), logits[i]});
    std::push_heap(best.begin(), best.end(), Better);
  }
  std::sort_heap(best.begin(), best.end(), Better);
  return best;
}

}  // namespace

TokenLogprobs ComputeLogprobs(std::span<const float> logits, int32_t token, int top) {
  const double total = LogSumExp(logits);
  TokenLogprobs result;
  result.logprob = static_cast<float>(logits[static_cast<size_t>(token)] - total);
  result.top = BestLogits(logits, static_cast<size_t>(std::max(top, 0)));
  for (IdLogprob& entry : result.top) entry.logprob = static_cast<float>(entry.logprob - total);
  return result;
}

}  // namespace lapidary
