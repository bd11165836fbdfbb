#include "cli/bench_runs.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "base/error.h"
#include "cli/direct_runner.h"

namespace lapidary {
namespace {

int64_t Largest(const std::vector<int64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

class Bench {
 public:
  Bench(const BenchPlan& plan, Backend& backend, const ProgressFn& progress, const std::function<void()>& measure)
      : plan_(plan),
        vocab_(backend.plan().vocab()),
        progress_(progress),
        measure_(measure),
        runner_(backend,
                {.sequences = static_cast<int>(plan.decode.empty() ? 1 : Largest(plan.batch)),
                 .depth = plan.depth,
                 .beyond = std::max(Largest(plan.prefill), Largest(plan.decode)),
                 .step_tokens = plan.step_tokens},
                plan.kv_type) {}

  std::vector<BenchRun> Run() {
    // Damaged weights are found before anything is measured.
    runner_.Run(0, ArbitraryIds(1, vocab_, 1), 1, nullptr);
    runner_.Truncate(0, 0);
    MeasureMachine();
    for (const int64_t tokens : plan_.prefill) {
      tests_.push_back({{.test = BenchTest::kPrefill, .tokens = tokens, .depth = plan_.depth},
                        "prefill",
                        [this, ids = ArbitraryIds(tokens, vocab_, 1)](int64_t count) {
                          Prefill(std::span(ids).first(static_cast<size_t>(count)));
                        }});
    }
    for (const int64_t tokens : plan_.decode) {
      for (const int64_t batch : plan_.batch) {
        tests_.push_back({{.test = BenchTest::kDecode, .tokens = tokens, .batch = batch, .depth = plan_.depth},
                          "decode",
                          [this, batch](int64_t count) { Decode(count, batch); }});
      }
    }
    for (Test& test : tests_) WarmUp(test);
    for (rep_ = 0; rep_ < plan_.reps; ++rep_) {
      for (Test& test : tests_) Measure(test);
    }
    return Results();
  }

 private:
  // Brings the first `batch` sequences to `depth`.
  void Rewind(int64_t batch) {
    const std::vector<int32_t> ids = ArbitraryIds(plan_.depth, vocab_, 2);
    for (; filled_ < batch; ++filled_) {
      for (int64_t first = 0; first < plan_.depth; first += plan_.step_tokens) {
        progress_("fill", static_cast<uint64_t>(first), static_cast<uint64_t>(plan_.depth));
        const int64_t rows = std::min(plan_.step_tokens, plan_.depth - first);
        runner_.Fill(static_cast<int>(filled_),
                     std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)));
      }
    }
    for (int64_t s = 0; s < batch; ++s) runner_.Truncate(static_cast<int>(s), plan_.depth);
  }

  struct Test {
    BenchRun run;
    const char* name;
    std::function<void(int64_t tokens)> body;
  };

  // The first step of a kind touches weights, scratch memory and threads: it does not count.
  void WarmUp(const Test& test) {
    Rewind(test.run.batch);
    test.body(test.run.test == BenchTest::kPrefill ? std::min(test.run.tokens, plan_.step_tokens) : 1);
  }

  void Measure(Test& test) {
    stage_ = test.name;
    Rewind(test.run.batch);
    runner_.TakeWork();
    const auto start = std::chrono::steady_clock::now();
    test.body(test.run.tokens);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    test.run.reps.push_back({seconds, measured_});
    const DirectRunner::Work work = runner_.TakeWork();
    test.run.steps = work.steps;
    test.run.flops = work.flops;
    MeasureMachine();
  }

  void MeasureMachine() {
    if (!measure_) return;
    measure_();
    ++measured_;
  }

  std::vector<BenchRun> Results() {
    std::vector<BenchRun> runs;
    for (Test& test : tests_) {
      BenchRun& run = test.run;
      std::vector<double> seconds;
      seconds.reserve(run.reps.size());
      for (const BenchRep& rep : run.reps) seconds.push_back(rep.seconds);
      run.seconds = Median(seconds);
      if (plan_.kernels && run.test == BenchTest::kDecode) run.kernels = TimeKernels(run.tokens, run.batch);
      runs.push_back(std::move(run));
    }
    return runs;
  }

  // Also where Ctrl-C is noticed.
  void ShowRep() const { progress_(stage_, static_cast<uint64_t>(rep_), static_cast<uint64_t>(plan_.reps)); }

  void Prefill(std::span<const int32_t> ids) {
    while (!ids.empty()) {
      const size_t rows = std::min(ids.size(), static_cast<size_t>(plan_.step_tokens));
      ShowRep();
      runner_.Run(0, ids.first(rows), rows == ids.size() ? 1 : 0, nullptr);
      ids = ids.subspan(rows);
    }
  }

  // Greedy, as a user would decode: the choice is part of the step.
  void Decode(int64_t tokens, int64_t batch) {
    std::vector<int32_t> ids = ArbitraryIds(batch, vocab_, 3);
    for (int64_t i = 0; i < tokens; ++i) {
      ShowRep();
      runner_.Decode(ids);
    }
  }

  // Of the middle step of a test.
  std::vector<KernelTime> TimeKernels(int64_t tokens, int64_t batch) {
    Rewind(batch);
    if (tokens > 1) Decode(tokens / 2, batch);
    return runner_.TimeDecode(ArbitraryIds(batch, vocab_, 3));
  }

  const BenchPlan& plan_;
  int64_t vocab_;
  const ProgressFn& progress_;
  const std::function<void()>& measure_;
  DirectRunner runner_;
  const char* stage_ = "warm up";
  int rep_ = 0;
  std::vector<Test> tests_;
  size_t measured_ = 0;  // calls of measure_
  int64_t filled_ = 0;   // sequences that have their `depth` tokens
};

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void CheckBenchPlan(const BenchPlan& plan, const Config& config, int64_t ctx) {
  const int64_t context = ctx == 0 ? config.max_position_embeddings : std::min(ctx, config.max_position_embeddings);
  if (plan.prefill.empty() && plan.decode.empty()) {
    Throw(ErrorKind::kInvalidArgument, "bench: found no test, wanted prompt lengths or tokens to decode");
  }
  const int64_t longest = plan.depth + std::max(Largest(plan.prefill), Largest(plan.decode));
  if (longest > context) {
    Throw(ErrorKind::kInvalidArgument, "bench: found " + std::to_string(longest) +
                                           " tokens of depth and test, wanted at most the context of " +
                                           std::to_string(context));
  }
  constexpr int64_t kMostSequences = 1024;
  if (Largest(plan.batch) > kMostSequences) {
    Throw(ErrorKind::kInvalidArgument,
          "-b: found " + std::to_string(Largest(plan.batch)) + ", wanted at most " + std::to_string(kMostSequences));
  }
}

std::vector<BenchRun> RunBenchPlan(const BenchPlan& plan, Backend& backend, const ProgressFn& progress,
                                   const std::function<void()>& measure) {
  return Bench(plan, backend, progress, measure).Run();
}

}  // namespace lapidary
