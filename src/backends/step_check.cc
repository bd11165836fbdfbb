#include "backends/step_check.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace lapidary {
namespace {

// Every block that the row reads or writes must be in its table and in the storage.
void CheckTables(const ModelPlan& plan, const std::array<int32_t, kKvGroups>& blocks, const StepBatch& batch,
                 size_t row) {
  const int64_t position = batch.positions[row];
  for (size_t g = 0; g < kKvGroups; ++g) {
    const KvGroup& group = plan.kv.groups[g];
    if (group.layers == 0) continue;
    const BlockTableView& table = batch.tables[static_cast<size_t>(batch.sequences[row])][g];
    const int64_t first = group.window == 0 ? 0 : std::max<int64_t>(0, position - group.window + 1);
    const int64_t begin = first / kKvBlockTokens - table.first_block,
                  end = position / kKvBlockTokens - table.first_block;
    bool covered = begin >= 0 && end < static_cast<int64_t>(table.blocks.size());
    for (int64_t b = begin; covered && b <= end; ++b) {
      const int32_t block = table.blocks[static_cast<size_t>(b)];
      covered = block >= 0 && block < blocks[g];
    }
    if (!covered)
      Throw(ErrorKind::kInvalidArgument,
            "step batch: the block table does not cover position " + std::to_string(position));
  }
}

}  // namespace

void CheckStep(const ModelPlan& plan, const std::array<int32_t, kKvGroups>& blocks, const StepBatch& batch) {
  const size_t rows = batch.ids.size();
  const auto wrong = [](const std::string& what) { Throw(ErrorKind::kInvalidArgument, "step batch: " + what); };
  if (rows == 0) wrong("found no rows, wanted at least 1");
  if (batch.positions.size() != rows || batch.sequences.size() != rows)
    wrong("found ids, positions and sequences of different lengths");
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int32_t row = batch.logit_rows[i];
    if (row < 0 || static_cast<size_t>(row) >= rows || (i > 0 && row <= batch.logit_rows[i - 1]))
      wrong("logit rows are not rising rows of the batch");
  }
  for (size_t r = 0; r < rows; ++r) {
    if (batch.ids[r] < 0 || batch.ids[r] >= plan.vocab()) {
      wrong("token id: found " + std::to_string(batch.ids[r]) + ", wanted 0 to " + std::to_string(plan.vocab() - 1));
    }
    if (batch.positions[r] < 0) wrong("position: found " + std::to_string(batch.positions[r]) + ", wanted 0 or more");
    if (batch.sequences[r] < 0 || static_cast<size_t>(batch.sequences[r]) >= batch.tables.size())
      wrong("a row names a sequence that has no tables");
    CheckTables(plan, blocks, batch, r);
  }
}

void CheckRoom(const char* what, size_t found, size_t wanted) {
  if (found >= wanted) return;
  Throw(ErrorKind::kInvalidArgument, std::string("step batch: found room for ") + std::to_string(found) + " " + what +
                                         ", wanted " + std::to_string(wanted));
}

void CheckKvType(DType type) {
  if (type == DType::kF32 || type == DType::kBF16) return;
  Throw(ErrorKind::kInvalidArgument, "K/V cache type: found " + std::string(NameOf(type)) + ", wanted F32 or BF16");
}

}  // namespace lapidary
