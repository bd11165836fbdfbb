#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lapidary {

struct IdLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm
};

// How likely one token was at its place, and what else was. Logits without a finite value have no entry in `top`.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<IdLogprob> top;  // best first, lower id first among equals
};

// From the log-softmax of `logits` [vocab]: of `token`, and of the `top` best.
TokenLogprobs ComputeLogprobs(std::span<const float> logits, int32_t token, int top);

}  // namespace lapidary
