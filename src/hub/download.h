#pragma once

#include <cstdint>
#include <string>

#include "base/progress.h"

namespace lapidary {

struct PullOptions {
  std::string repository;  // "owner/name"
  std::string revision = "main";
  std::string folder;                               // target; made if missing, once the listing is there
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT
  std::string token;                        // HF_TOKEN; sent to the endpoint only, never to a redirect's other host
  int connections = 8;                      // parallel ranges, in [1, 64]
  int64_t range_bytes = int64_t{32} << 20;  // at least 64 KiB
  int retries = 5;                          // of one range, in [0, 100]
  int first_wait_ms = 500;                  // before the first retry; doubles with each further one
  int stall_seconds = 30;                   // a range that moves no byte for this long is retried
};

// Downloads the files a model folder needs (config, generation config, tokenizer, chat template, safetensors and their
// index) into `folder`. All files come from the one commit that `revision` names at the start. Finished ranges survive
// an interruption and are not fetched again; every file is checked for size and, where the hub states one, its hash,
// and gets its final name only then. Files that are there already and pass that check are not fetched.
// `progress` is called on the calling thread, about ten times a second, with the stages "listing" (total 0), "checking"
// (of files already there), "downloading" and "verifying", in bytes over all files. What it throws ends the download,
// which stays resumable, and is passed on.
// Throws Error: kNotFound (repository, revision or file), kInvalidArgument (name, folder, token refused, another
// download at work in the folder), kCorruptFile (the hub's answers, size or hash), kOutOfMemory (no space), kDevice
// (network gave up, or no hub could be reached at all).
void Pull(const PullOptions& options, const ProgressFn& progress);

}  // namespace lapidary
