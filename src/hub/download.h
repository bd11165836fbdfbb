#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"

namespace lapidary {

struct PullOptions {
  std::string repository;                         // "owner/name"
  std::string revision = "main";
  std::string folder;                             // target; made if missing
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT
  std::string token;                              // HF_TOKEN; sent to the endpoint only, never to a redirect's other host
  int connections = 8;                            // parallel ranges
  int64_t range_bytes = int64_t{32} << 20;
  int retries = 5;                                // of one range, with growing waits
  int stall_seconds = 30;                         // a range that moves no byte for this long is retried
};

// Downloads the files a model folder needs (config, generation config, tokenizer, chat template, safetensors and their
// index) into `folder`. Finished ranges survive an interruption and are not fetched again; every file is checked for
// size and sha256 where the hub states one, and gets its final name only then. Throws Error: kNotFound (repository or
// file), kInvalidArgument (name, folder, token refused), kCorruptFile (size or hash), kOutOfMemory (no space),
// kDevice (network gave up).
void Pull(const PullOptions& options, const ProgressFn& progress);

}  // namespace lapidary
