#pragma once

#include <CLI/CLI.hpp>

#include "generation/generate_options.h"

namespace lapidary {

// The options that say how tokens are drawn. What is not given comes from the model's generation_config.json.
void AddSamplingOptions(CLI::App& command, GenerateOptions& options);

}  // namespace lapidary
