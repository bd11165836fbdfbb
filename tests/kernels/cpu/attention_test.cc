#include "kernels/cpu/attention.h"

#include <gmock/gmock.h>

#include <cstring>

#include "kernels/reference/reference.h"
#include "simd_test.h"

namespace lapidary::cpu {
namespace {

class AttentionTest : public SimdTest {
 protected:
  // The cache of one sequence, its blocks in shuffled places, filled with random keys and values.
  struct Cache {
    std::vector<std::byte> memory;
    std::vector<int32_t> blocks;
    KvBlocks view;
    std::vector<float> k, v;  // [positions, kv_heads, head_dim], as stored
  };

  Cache Fill(const AttentionShape& shape, int64_t positions, DType dtype, float scale) {
    Cache cache;
    const size_t width = static_cast<size_t>(shape.kv_heads * shape.head_dim);
    const size_t block_bytes = 2 * kBlockPositions * width * SizeOf(dtype);
    const size_t count = static_cast<size_t>((positions + kBlockPositions - 1) / kBlockPositions);
    cache.memory.assign(block_bytes * (2 * count + 1), std::byte{0xff});  // unwritten places hold NaN
    for (size_t b = 0; b < count; ++b) cache.blocks.push_back(static_cast<int32_t>(2 * (count - b)));
    cache.view = {cache.memory.data(), static_cast<int64_t>(block_bytes), cache.blocks.data(), 0, dtype};
    cache.k = RandomExact(static_cast<size_t>(positions) * width, scale);
    cache.v = RandomExact(static_cast<size_t>(positions) * width);
    for (int64_t p = 0; p < positions; ++p) {
      AppendKv(shape, cache.view, p, cache.k.data() + static_cast<size_t>(p) * width,
               cache.v.data() + static_cast<size_t>(p) * width);
    }
    return cache;
  }

  std::vector<float> Run(int threads, const AttentionShape& shape, const std::vector<float>& q,
                         const std::vector<AttentionRow>& rows) {
    ThreadPool pool(threads);
    AttentionScratch scratch;
    std::vector<float> out(q.size(), NAN);
    Attention(pool, scratch, shape, q.data(), rows, out.data());
    return out;
  }
};
LAPIDARY_SIMD_SUITE(AttentionTest);

// A score is a sum of up to 512 products; without lanes (the portable target) it is added one by one, so its error is
// up to about sqrt(512) * 2^-24 of |score| ~ 5, and exp passes it on: 7e-6, a few times over between the largest of
// 10^5 elements.
constexpr double kTolerance = 5e-5;

TEST_P(AttentionTest, AgreesWithTheReference) {
  for (const AttentionShape& shape : {AttentionShape{8, 1, 256, 512},
                                      {8, 1, 512, 0},
                                      {4, 1, 32, 16},
                                      {8, 2, 64, 100},
                                      {6, 3, 48, 5},
                                      {10, 1, 20, 0}}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (int64_t positions : {1, 65, 600}) {
        Cache cache = Fill(shape, positions, dtype, 0.1f);
        const int64_t rows = std::min<int64_t>(positions, 17), first = positions - rows;
        const std::vector<float> q = Random(static_cast<size_t>(rows * shape.heads * shape.head_dim));
        std::vector<AttentionRow> where;
        for (int64_t r = 0; r < rows; ++r) where.push_back({first + r, &cache.view});
        const reference::AttentionProblem problem{static_cast<size_t>(shape.heads), static_cast<size_t>(shape.kv_heads),
                                                  static_cast<size_t>(shape.head_dim), shape.window, first};
        const std::vector<float> found = Run(2, shape, q, where);
        EXPECT_LE(RelativeError(found.data(), reference::Attention(problem, q, cache.k, cache.v)), kTolerance)
            << shape.head_dim << " " << NameOf(dtype) << " " << positions;
      }
    }
  }
}

// Large scores: the maximum must be taken off before exp.
TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const AttentionShape shape{4, 1, 64, 0};
  Cache cache = Fill(shape, 200, DType::kF32, 30.0f);
  const std::vector<float> q = Random(static_cast<size_t>(shape.heads * shape.head_dim), 10.0f);
  const std::vector<float> found = Run(1, shape, q, {{199, &cache.view}});
  EXPECT_LE(RelativeError(found.data(), reference::Attention({4, 1, 64, 0, 199}, q, cache.k, cache.v)), 1e-3);
}

// Many rows go through tiles of rows, few rows through segments: the bits must be the same, on any number of threads.
TEST_P(AttentionTest, BitsDependOnNeitherRowsNorThreads) {
  for (const AttentionShape& shape : {AttentionShape{8, 1, 256, 512}, {8, 1, 512, 0}, {8, 2, 64, 100}}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      Cache cache = Fill(shape, 900, dtype, 0.1f);
      constexpr size_t kRows = 37;
      const size_t width = static_cast<size_t>(shape.heads * shape.head_dim);
      const std::vector<float> q = Random(kRows * width);
      std::vector<AttentionRow> rows;
      for (size_t r = 0; r < kRows; ++r) rows.push_back({static_cast<int64_t>(900 - kRows + r), &cache.view});
      const std::vector<float> together = Run(1, shape, q, rows);
      for (int threads : {2, 3})
        EXPECT_THAT(Run(threads, shape, q, rows), testing::ElementsAreArray(together)) << threads;
      for (size_t r = 0; r < kRows; ++r) {
        const std::vector<float> one(q.begin() + static_cast<ptrdiff_t>(r * width),
                                     q.begin() + static_cast<ptrdiff_t>((r + 1) * width));
        const std::vector<float> alone = Run(1 + static_cast<int>(r % 3), shape, one, {rows[r]});
        EXPECT_EQ(std::memcmp(alone.data(), together.data() + r * width, width * sizeof(float)), 0) << r;
      }
    }
  }
}

TEST_P(AttentionTest, RowsOfSeveralSequences) {
  const AttentionShape shape{4, 2, 32, 0};
  Cache a = Fill(shape, 130, DType::kF32, 0.1f), b = Fill(shape, 20, DType::kF32, 0.1f);
  const size_t width = static_cast<size_t>(shape.heads * shape.head_dim);
  const std::vector<float> q = Random(2 * width);
  const std::vector<float> found = Run(2, shape, q, {{129, &a.view}, {19, &b.view}});
  const std::vector<float> qa(q.begin(), q.begin() + static_cast<ptrdiff_t>(width)),
      qb(q.begin() + static_cast<ptrdiff_t>(width), q.end());
  EXPECT_LE(RelativeError(found.data(), reference::Attention({4, 2, 32, 0, 129}, qa, a.k, a.v)), kTolerance);
  EXPECT_LE(RelativeError(found.data() + width, reference::Attention({4, 2, 32, 0, 19}, qb, b.k, b.v)), kTolerance);
}

// Only the window's blocks are there: what lies before it must not be touched.
TEST_P(AttentionTest, BlocksBeforeTheWindowMayBeGone) {
  const AttentionShape shape{4, 1, 32, 100};
  Cache cache = Fill(shape, 400, DType::kF32, 0.1f);
  const size_t width = static_cast<size_t>(shape.heads * shape.head_dim);
  const std::vector<float> q = Random(width);
  const std::vector<float> whole = Run(1, shape, q, {{399, &cache.view}});
  KvBlocks tail = cache.view;
  tail.first_block = 300 / kBlockPositions;
  tail.blocks = cache.blocks.data() + tail.first_block;
  EXPECT_THAT(Run(1, shape, q, {{399, &tail}}), testing::ElementsAreArray(whole));
}

}  // namespace
}  // namespace lapidary::cpu
