#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/progress.h"
#include "model/config.h"

namespace lapidary {

// Deterministic synthetic checkpoints: every element is a pure function of tensor name and flat index, so results
// computed elsewhere for the same rule stay valid (see docs/numerics.md).

// Fills `out` with elements [first, first + out.size()) of tensor `name`: bfloat16(mean + amp * u(name, index)).
void SynthFill(const std::string& name, float mean, float amp, int64_t first, std::span<BF16> out);

// The config.json text of a built-in shape ("e2b"). Throws Error kInvalidArgument for an unknown one.
std::string SynthShape(const std::string& shape);

// Writes config.json and model.safetensors for `config_json` (either form) into `folder`, made if missing. K/V tensors
// of sharing layers are written too, as Google's files have them. An existing complete checkpoint of the same content
// size is left alone. Throws Error: kInvalidArgument (folder not writable), kOutOfMemory (no space).
void WriteSynthCheckpoint(const std::string& config_json, const std::string& folder, int threads, const ProgressFn& progress);

}  // namespace lapidary
