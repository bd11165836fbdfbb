#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "base/error.h"
#include "cli/bench_runs.h"
#include "cli/command_line.h"
#include "cli/json_output.h"
#include "cli/parse_values.h"
#include "cli/terminal.h"

namespace lapidary {
namespace {

struct Options {
  ModelOptions model;
  std::string prefill = "512,2048", decode = "64", batch = "1,8";
  int64_t depth = 0, prefill_chunk = 0;
  int reps = 3;
  bool json = false;
};

// What the machine can do, measured after a first step and behind each repetition: a shared machine may change in
// between, so the medians count, of both.
class Machine {
 public:
  explicit Machine(Backend& backend) : backend_(backend) {}

  void Measure() {
    ThrowIfInterrupted();
    const MachineRates rates = backend_.MeasureMachine();
    read_bandwidths_.push_back(rates.read_bytes_per_s);
    fma_peaks_.push_back(rates.flops_per_s);
    ThrowIfInterrupted();
  }

  double read_bandwidth() const { return Median(read_bandwidths_); }  // bytes/s
  double fma_peak() const { return Median(fma_peaks_); }              // flop/s

 private:
  static double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  }

  Backend& backend_;
  std::vector<double> read_bandwidths_, fma_peaks_;
};

Json RunJson(const BenchRun& run, const Machine& machine, int64_t weight_bytes) {
  const bool prefill = run.test == BenchTest::kPrefill;
  const auto steps = static_cast<double>(run.steps);
  const double weight_rate = static_cast<double>(weight_bytes) * steps / run.seconds;
  return {{"test", prefill ? "prefill" : "decode"},
          {"tokens", run.tokens},
          {"batch", run.batch},
          {"depth", run.depth},
          {"seconds", run.seconds},
          {"tokens_per_s", static_cast<double>(run.tokens * run.batch) / run.seconds},
          {"ms_per_step", run.seconds / steps * 1e3},
          {"weight_bytes_per_step", weight_bytes},
          {"weight_gb_s", weight_rate / 1e9},
          {"bandwidth_share", prefill ? Json() : Json(weight_rate / machine.read_bandwidth())},
          {"compute_share",
           prefill && machine.fma_peak() > 0 ? Json(run.flops / run.seconds / machine.fma_peak()) : Json()}};
}

std::string BenchText(const Json& json) {
  std::string peak = "; float32 FMA peak not measured";
  if (!json["peak_gflop_s"].is_null())
    peak = fmt::format("; float32 FMA peak {:.0f} GFLOP/s", json["peak_gflop_s"].get<double>());
  std::string text = fmt::format(
      "{}\n{}; reads {:.1f} GB/s{}; loaded in {:.2f} s\n"
      "test     tokens  batch   depth   seconds  tokens/s   ms/step  weights GB/s  share of peak\n",
      json["model"].get<std::string>(), json["device"].get<std::string>(), json["read_bandwidth_gb_s"].get<double>(),
      peak, json["load_s"].get<double>());
  for (const Json& r : json["results"]) {
    const bool decode = r["test"] == "decode";
    const Json& share = r[decode ? "bandwidth_share" : "compute_share"];
    text += fmt::format(
        "{:<8} {:>6}  {:>5}  {:>6}  {:>8.3f}  {:>8.1f}  {:>8.2f}  {:>12.2f}  {}\n", r["test"].get<std::string>(),
        r["tokens"].get<int64_t>(), r["batch"].get<int64_t>(), r["depth"].get<int64_t>(), r["seconds"].get<double>(),
        r["tokens_per_s"].get<double>(), r["ms_per_step"].get<double>(), r["weight_gb_s"].get<double>(),
        share.is_null() ? "-"
                        : fmt::format("{:>5.1f} % of {}", 100 * share.get<double>(), decode ? "bandwidth" : "FMA"));
  }
  return text;
}

// An empty list is no test of that kind.
std::vector<int64_t> Counts(const std::string& text, const char* what) {
  return text.empty() || text == "0" ? std::vector<int64_t>{} : ParseCounts(text, what);
}

void RunBench(const Options& o, const CliEnvironment& environment) {
  BenchPlan plan{.prefill = Counts(o.prefill, "-p"),
                 .decode = Counts(o.decode, "-n"),
                 .batch = ParseCounts(o.batch, "-b"),
                 .depth = o.depth,
                 .reps = o.reps,
                 .kv_type = o.model.kv_dtype()};
  CatchInterrupt();
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<Backend> backend = LoadBackend(environment, o.model);
  const double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  plan.step_tokens = PrefillChunk(o.prefill_chunk, backend->PreferredStepTokens());
  CheckBenchPlan(plan, backend->plan().config, o.model.ctx);
  Machine machine(*backend);
  Json results = Json::array();
  {
    ProgressBar bar(ProgressUnit::kTokens);
    for (const BenchRun& run : RunBenchPlan(plan, *backend, bar.function(), [&] { machine.Measure(); })) {
      results.push_back(RunJson(run, machine, backend->WeightBytesPerStep()));
    }
  }
  const Json json = {{"model", o.model.folder},
                     {"device", backend->Description()},
                     {"threads", backend->HostThreads()},
                     {"read_bandwidth_gb_s", machine.read_bandwidth() / 1e9},
                     {"peak_gflop_s", machine.fma_peak() > 0 ? Json(machine.fma_peak() / 1e9) : Json()},
                     {"load_s", load_s},
                     {"results", results}};
  Print(o.json ? ToText(json) : BenchText(json));
}

}  // namespace

void AddBenchCommand(CommandLine& line) {
  auto o = std::make_shared<Options>();
  CLI::App& command = *line.app.add_subcommand("bench", "Measures prefill and decode against what the machine can do");
  command.add_option("-p,--prefill", o->prefill, "Prompt lengths (default 512,2048); 0: none")->type_name("N,N...");
  command.add_option("-n,--decode", o->decode, "Tokens to decode (default 64); 0: none")->type_name("N,N...");
  command.add_option("-b,--batch", o->batch, "Sequences decoded together (default 1,8)")->type_name("N,N...");
  command.add_option("--depth", o->depth, "Tokens that are in the cache before each test")
      ->type_name("N")
      ->check(IntegerIn(0, std::numeric_limits<int64_t>::max()));
  command.add_option("--reps", o->reps, "Times each test is run (default 3); the median counts")
      ->check(CLI::Range(1, 1000));
  AddPrefillChunkOption(command, o->prefill_chunk);
  command.add_flag("--json", o->json, "Print one JSON object");
  AddModelOptions(command, o->model, line.environment);
  command.footer(
      "Examples:\n"
      "  lapidary bench -m DIR\n"
      "  lapidary bench -m DIR -p 512 -n 64 -b 1,4 --depth 4096 --json");
  command.callback([&line, o] { line.run = [&line, o] { RunBench(*o, line.environment); }; });
}

}  // namespace lapidary
