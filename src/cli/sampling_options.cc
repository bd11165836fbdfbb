#include "cli/sampling_options.h"

#include <limits>

#include "cli/command_line.h"

namespace lapidary {

void AddSamplingOptions(CLI::App& command, GenerateOptions& options) {
  command.add_option("--temp", options.temperature, "Temperature; 0: greedy")
      ->type_name("T")
      ->check(NumberThat([](double t) { return t >= 0; }, "a finite number >= 0"));
  command.add_option("--top-k", options.top_k, "Draw from the K best; 0: all")
      ->type_name("K")
      ->check(IntegerIn(0, std::numeric_limits<int64_t>::max()));
  command.add_option("--top-p", options.top_p, "Draw from the best whose probabilities reach P")
      ->type_name("P")
      ->check(NumberThat([](double p) { return p > 0 && p <= 1; }, "a number in (0, 1]"));
  command.add_option("--min-p", options.min_p, "Draw from those at least P times as likely as the best")
      ->type_name("P")
      ->check(NumberThat([](double p) { return p >= 0 && p <= 1; }, "a number in [0, 1]"));
  const CLI::Validator finite = NumberThat([](double) { return true; }, "a finite number");
  command.add_option("--repetition-penalty", options.repetition_penalty, "Over prompt and answer; 1: none")
      ->type_name("X")
      ->check(NumberThat([](double x) { return x > 0; }, "a finite number > 0"));
  command.add_option("--presence-penalty", options.presence_penalty, "Over the answer")->type_name("X")->check(finite);
  command.add_option("--frequency-penalty", options.frequency_penalty, "Over the answer, for each occurrence")
      ->type_name("X")
      ->check(finite);
  command.add_option("--seed", options.seed, "Same seed, same text; default: a fresh one")
      ->type_name("N")
      ->check(IntegerIn(0, std::numeric_limits<int64_t>::max()));
}

}  // namespace lapidary
