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
// computed elsewhere for the same rule stay valid. The rule, in IEEE arithmetic without contraction:
//
//   seed   = FNV-1a 64 of the tensor's name in the multimodal form, "model.language_model. ...", whatever form is
//   written z      = SplitMix64 of state seed + (index + 1) * 0x9E3779B97F4A7C15, index row-major from 0 u      =
//   float32(z >> 40) * 2^-23 - 1, in [-1, 1) value  = float32(mean) + float32(amp) * u, rounded twice, then to bfloat16
//   (nearest even)

// Fills `out` with elements [first, first + out.size()) of tensor `name`: bfloat16(mean + amp * u(name, index)).
void SynthFill(const std::string& name, float mean, float amp, int64_t first, std::span<BF16> out);

// The config.json text of a built-in shape ("e2b"). Throws Error kInvalidArgument for an unknown one.
std::string SynthShape(const std::string& shape);

// Writes config.json and model.safetensors for `config_json` (either form; only the text tensors) into `folder`, made
// if missing. K/V tensors of sharing layers are written too, as Google's files have them. The model appears under its
// name only once complete. The same checkpoint already there is left alone; a different one is never overwritten.
// Throws Error: those of ParseConfig, kInvalidArgument (threads, folder not writable, another checkpoint in it),
// kOutOfMemory (no space), and whatever `progress` throws.
void WriteSynthCheckpoint(const std::string& config_json, const std::string& folder, int threads,
                          const ProgressFn& progress);

}  // namespace lapidary
