#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/backend.h"
#include "base/dtype.h"

namespace lapidary {

// What every backend checks before a step; all throw Error kInvalidArgument.

// Rows, ids, logit rows, and block tables that cover what the rows read and write in a cache of `blocks` blocks.
void CheckStep(const ModelPlan& plan, const std::array<int32_t, kKvGroups>& blocks, const StepBatch& batch);
// Room in an output; `what` names its elements.
void CheckRoom(const char* what, size_t found, size_t wanted);
void CheckKvType(DType type);

}  // namespace lapidary
