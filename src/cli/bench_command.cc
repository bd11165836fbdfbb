#include <fmt/core.h>

#include <chrono>
#include <limits>
#include <optional>
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
  bool json = false, kernels = false;
};

// What the machine can do, measured after a first step and behind each repetition, since a shared machine may change in
// between: a repetition is held against what was measured before and behind it.
class Machine {
 public:
  explicit Machine(Backend& backend) : backend_(backend) {}

  void Measure() {
    ThrowIfInterrupted();
    rates_.push_back(backend_.MeasureMachine());
    ThrowIfInterrupted();
  }

  // Medians of all measurements.
  double read_bandwidth() const { return MedianOf(&MachineRates::read_bytes_per_s); }  // bytes/s
  double fma_peak() const { return MedianOf(&MachineRates::flops_per_s); }             // flop/s
  const char* flops_kind() const { return rates_.back().flops_kind; }

  // Means of the measurements before and behind a repetition.
  double ReadBandwidth(const BenchRep& rep) const { return Around(rep, &MachineRates::read_bytes_per_s); }
  double FmaPeak(const BenchRep& rep) const { return Around(rep, &MachineRates::flops_per_s); }

 private:
  using Rate = double MachineRates::*;

  double Around(const BenchRep& rep, Rate rate) const {
    return (rates_[rep.measured - 1].*rate + rates_[rep.measured].*rate) / 2;
  }
  double MedianOf(Rate rate) const {
    std::vector<double> values;
    values.reserve(rates_.size());
    for (const MachineRates& rates : rates_) values.push_back(rates.*rate);
    return Median(values);
  }

  Backend& backend_;
  std::vector<MachineRates> rates_;
};

// Kernels of a step, with their shares of the time of all. GB/s is null where the bytes are not known.
Json KernelsJson(const std::vector<KernelTime>& kernels) {
  double all = 0;
  for (const KernelTime& kernel : kernels) all += kernel.is_stage ? 0.0 : kernel.seconds;
  Json out = Json::array();
  for (const KernelTime& kernel : kernels) {
    const bool known = kernel.bytes > 0 && kernel.seconds > 0;
    out.push_back({{"name", kernel.name},
                   {"is_stage", kernel.is_stage},
                   {"launches", kernel.launches},
                   {"seconds", kernel.seconds},
                   {"bytes", kernel.bytes > 0 ? Json(kernel.bytes) : Json()},
                   {"gb_s", known ? Json(static_cast<double>(kernel.bytes) / kernel.seconds / 1e9) : Json()},
                   {"share", all > 0 ? kernel.seconds / all : 0.0}});
  }
  return out;
}

Json RunJson(const BenchRun& run, const Machine& machine, int64_t weight_bytes, bool kernels) {
  const bool prefill = run.test == BenchTest::kPrefill;
  const auto steps = static_cast<double>(run.steps), step_bytes = static_cast<double>(weight_bytes);
  std::vector<double> shares;  // of what the machine could do around each repetition
  Json reps = Json::array();
  for (const BenchRep& rep : run.reps) {
    const double bandwidth = machine.ReadBandwidth(rep);
    shares.push_back(prefill ? run.flops / rep.seconds / machine.FmaPeak(rep)
                             : step_bytes * steps / rep.seconds / bandwidth);
    reps.push_back({{"seconds", rep.seconds}, {"read_bandwidth_gb_s", bandwidth / 1e9}});
  }
  const double share = Median(shares);
  Json json = {{"test", prefill ? "prefill" : "decode"},
               {"tokens", run.tokens},
               {"batch", run.batch},
               {"depth", run.depth},
               {"seconds", run.seconds},
               {"tokens_per_s", static_cast<double>(run.tokens * run.batch) / run.seconds},
               {"ms_per_step", run.seconds / steps * 1e3},
               {"weight_bytes_per_step", weight_bytes},
               {"weight_gb_s", step_bytes * steps / run.seconds / 1e9},
               {"bandwidth_share", prefill ? Json() : Json(share)},
               {"compute_share", prefill && machine.fma_peak() > 0 ? Json(share) : Json()},
               {"reps", reps}};
  if (kernels && !prefill) json["kernels"] = KernelsJson(run.kernels);
  return json;
}

std::string KernelsText(const Json& run) {
  if (run["kernels"].empty()) return "no kernel times of this step\n";
  std::string text =
      fmt::format("kernels of a step, batch {}, one after another:\n  {:<42} {:>8}  {:>9}  {:>9}  {:>7}  {:>7}\n",
                  run["batch"].get<int64_t>(), "", "launches", "us", "MB", "GB/s", "share");
  for (const Json& kernel : run["kernels"]) {
    const bool known = !kernel["gb_s"].is_null();
    const std::string name = (kernel["is_stage"].get<bool>() ? "  " : "") + kernel["name"].get<std::string>();
    text += fmt::format(
        "  {:<42} {:>8}  {:>9.1f}  {:>9}  {:>7}  {:>5.1f} %\n", name, kernel["launches"].get<int64_t>(),
        kernel["seconds"].get<double>() * 1e6, known ? fmt::format("{:.1f}", kernel["bytes"].get<double>() / 1e6) : "-",
        known ? fmt::format("{:.0f}", kernel["gb_s"].get<double>()) : "-", 100 * kernel["share"].get<double>());
  }
  return text;
}

std::string MemoryText(const Json& memory) {
  if (memory.is_null()) return "";
  return fmt::format("device memory: {:.2f} GB, of it weights {:.2f}, K/V cache {:.2f}\n",
                     memory["used_bytes"].get<double>() / 1e9, memory["weights_bytes"].get<double>() / 1e9,
                     memory["kv_bytes"].get<double>() / 1e9);
}

std::string BenchText(const Json& json) {
  const auto kind = json["peak_of"].get<std::string>();
  std::string peak = fmt::format("; {} peak not measured", kind);
  if (!json["peak_gflop_s"].is_null())
    peak = fmt::format("; {} peak {:.0f} GFLOP/s", kind, json["peak_gflop_s"].get<double>());
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
                        : fmt::format("{:>5.1f} % of {}", 100 * share.get<double>(), decode ? "bandwidth" : "peak"));
  }
  for (const Json& r : json["results"]) {
    if (r.contains("kernels")) text += KernelsText(r);
  }
  return text + MemoryText(json["device_memory"]);
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
                 .kv_type = o.model.kv_dtype(),
                 .kernels = o.kernels};
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
      results.push_back(RunJson(run, machine, backend->WeightBytesPerStep(), o.kernels));
    }
  }
  Json memory;
  if (const std::optional<DeviceMemoryUse> use = backend->MemoryUse()) {
    memory = {{"used_bytes", use->used}, {"weights_bytes", use->weights}, {"kv_bytes", use->kv}};
  }
  const Json json = {{"model", o.model.folder},
                     {"device", backend->Description()},
                     {"threads", backend->HostThreads()},
                     {"read_bandwidth_gb_s", machine.read_bandwidth() / 1e9},
                     {"peak_gflop_s", machine.fma_peak() > 0 ? Json(machine.fma_peak() / 1e9) : Json()},
                     {"peak_of", machine.flops_kind()},
                     {"load_s", load_s},
                     {"device_memory", memory},
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
  command.add_flag("--kernels", o->kernels, "Also where the time of a decode step goes (GPU)");
  command.add_flag("--json", o->json, "Print one JSON object");
  AddModelOptions(command, o->model, line.environment);
  command.footer(
      "Examples:\n"
      "  lapidary bench -m DIR\n"
      "  lapidary bench -m DIR -p 512 -n 64 -b 1,4 --depth 4096 --json");
  command.callback([&line, o] { line.run = [&line, o] { RunBench(*o, line.environment); }; });
}

}  // namespace lapidary
