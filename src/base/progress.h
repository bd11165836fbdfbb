#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace lapidary {

// Called now and then by long work: `done` of `total` units (0: unknown), from the thread that does the work.
// May throw Error kCancelled to stop the work.
using ProgressFn = std::function<void(std::string_view stage, uint64_t done, uint64_t total)>;

}  // namespace lapidary
