#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "hub/listing.h"
#include "hub/workers.h"

namespace lapidary {

// Reads the file at `path` and says how it differs from `file`: "" when size and the stated hash are equal, else
// "found ..., wanted ...". Adds to `read_bytes` as it goes, file.size in all. Throws Error kCancelled when stopped;
// kInvalidArgument when it cannot be read.
std::string FindDifference(const std::string& path, const RemoteFile& file, std::atomic<uint64_t>& read_bytes,
                           const StopFlag& stop);

}  // namespace lapidary
