#include "backends/cpu/kv_storage.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "model/config.h"
#include "testing/model_runner.h"

namespace lapidary::cpu {
namespace {

TEST(KvStorageTest, LayersOfAGroupShareBlocksWithoutOverlap) {
  const ModelPlan plan = MakeModelPlan(LoadConfig(TestData("e2b-mini")));
  const KvStorage storage(plan.kv, {3, 2}, DType::kBF16);
  const std::vector<int32_t> blocks = {2, 0};
  std::set<const std::byte*> starts;
  for (const LayerPlan& layer : plan.layers) {
    const KvBlocks view = storage.View(layer, {5, blocks});
    EXPECT_EQ(view.first_block, 5);
    EXPECT_EQ(view.blocks, blocks.data());
    EXPECT_EQ(view.dtype, DType::kBF16);
    EXPECT_EQ(view.block_bytes, plan.kv.groups[static_cast<size_t>(layer.attention)].elements_per_block() * 2);
    // A sharing layer sees the cache of the layer it borrows from; every writer has a place of its own.
    EXPECT_EQ(starts.insert(view.data).second, layer.writes_kv) << layer.index;
    EXPECT_EQ(view.data, storage.View(plan.layers[static_cast<size_t>(layer.kv_source)], {5, blocks}).data);
    std::memset(view.data + 2 * view.block_bytes * (storage.blocks(static_cast<int>(layer.attention)) > 2), 1,
                16);  // is writable
  }
}

TEST(KvStorageTest, MovesItsMemory) {
  const ModelPlan plan = MakeModelPlan(LoadConfig(TestData("e2b-mini")));
  KvStorage from(plan.kv, {1, 1}, DType::kF32);
  const std::vector<int32_t> blocks = {0};
  std::byte* data = from.View(plan.layers[0], {0, blocks}).data;
  data[3] = std::byte{42};
  KvStorage to(std::move(from));
  EXPECT_EQ(to.View(plan.layers[0], {0, blocks}).data, data);
  EXPECT_EQ(data[3], std::byte{42});
}

}  // namespace
}  // namespace lapidary::cpu
