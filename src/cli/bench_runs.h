#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backends/backend.h"
#include "base/progress.h"

namespace lapidary {

struct BenchPlan {
  std::vector<int64_t> prefill;  // prompt lengths
  std::vector<int64_t> decode;   // tokens
  std::vector<int64_t> batch;    // of decode
  int64_t depth = 0;             // tokens in the cache of each sequence before a test
  int reps = 3;
  int64_t step_tokens = 256;  // rows of one prefill step
  DType kv_type = DType::kF32;
  bool kernels = false;  // also where the time of a decode step goes
};

enum class BenchTest : uint8_t { kPrefill, kDecode };

// One repetition of a test.
struct BenchRep {
  double seconds = 0;
  size_t measured = 0;  // calls of `measure` before it; the next is behind it
};

struct BenchRun {
  BenchTest test = BenchTest::kPrefill;
  int64_t tokens = 0;  // of each sequence
  int64_t batch = 1;
  int64_t depth = 0;
  double seconds = 0;  // median
  int64_t steps = 0;
  double flops = 0;  // executed in one repetition
  std::vector<BenchRep> reps{};
  std::vector<KernelTime> kernels{};
};

// Of at least one value.
double Median(std::vector<double> values);

// Throws Error kInvalidArgument: nothing to do, or longer than the context (`ctx`, 0: the model's).
void CheckBenchPlan(const BenchPlan& plan, const Config& config, int64_t ctx);

// Runs every test on its own K/V, which this call allocates. Token ids are arbitrary but always the same. Calls
// `measure` (may be empty) once the model has taken a first step, and behind every repetition. Repetitions of the tests
// take turns, so that tests can be compared on a machine whose speed changes.
std::vector<BenchRun> RunBenchPlan(const BenchPlan& plan, Backend& backend, const ProgressFn& progress,
                                   const std::function<void()>& measure);

}  // namespace lapidary
