#include "kernels/gpu/attention_prefill.h"

#include <gmock/gmock.h>

#include <bit>
#include <numeric>

#include "base/error.h"
#include "device_rows.h"
#include "kernels/reference/reference.h"

namespace lapidary::gpu::testing {
namespace {

constexpr int64_t kManySharedBytes = 232448;  // sm_90
constexpr int64_t kFewSharedBytes = 166912;   // sm_80

// Rows of a sequence, `step` positions apart.
struct Chunk {
  int first_position, rows, step = 1;
  size_t length() const { return size_t(first_position + (rows - 1) * step + 1); }
};

struct Case {
  const char* name;
  PrefillShape shape;
  std::vector<Chunk> chunks;  // one a sequence
  int64_t shared_bytes = kManySharedBytes;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Sequences with their keys and values in a paged cache: blocks in no order, unseen positions not numbers.
class PagedSequences {
 public:
  explicit PagedSequences(const Case& c) : c_(c), width_(size_t(c.shape.kv_heads) * size_t(c.shape.head_dim)) {
    for (size_t s = 0; s < c.chunks.size(); ++s) {
      const Chunk& chunk = c.chunks[s];
      const size_t length = chunk.length();
      keys_.push_back(Rounded(RandomRows(length * width_, 0.3f, uint32_t(10 + s))));
      values_.push_back(Rounded(RandomRows(length * width_, 1.0f, uint32_t(20 + s))));
      max_blocks_ = std::max(max_blocks_, int((length + kBlockPositions - 1) / kBlockPositions));
      for (int r = 0; r < chunk.rows; ++r) {
        rows_positions_.push_back(chunk.first_position + r * chunk.step);
        rows_sequences_.push_back(int32_t(s));
      }
    }
    Place();
  }

  size_t rows() const { return rows_positions_.size(); }
  const std::vector<int32_t>& positions() const { return rows_positions_; }
  const std::vector<int32_t>& sequences() const { return rows_sequences_; }

  KvCacheView View() const {
    return {static_cast<std::byte*>(memory_.data()) + kSlot * slot_bytes(),
            kSlots * slot_bytes(),
            blocks_->data(),
            first_blocks_->data(),
            max_blocks_,
            c_.shape.is_bf16_cache};
  }

  std::vector<double> Wanted(const std::vector<float>& q) const {
    const size_t q_width = size_t(c_.shape.heads * c_.shape.head_dim);
    std::vector<double> out;
    for (size_t s = 0, row = 0; s < c_.chunks.size(); row += size_t(c_.chunks[s].rows), ++s) {
      const Chunk& chunk = c_.chunks[s];
      const reference::AttentionProblem problem{size_t(c_.shape.heads), size_t(c_.shape.kv_heads),
                                                size_t(c_.shape.head_dim), c_.shape.window, chunk.first_position};
      // The rows between are not looked at.
      std::vector<float> all((chunk.length() - size_t(chunk.first_position)) * q_width);
      for (size_t r = 0; r < size_t(chunk.rows); ++r) {
        std::copy_n(q.begin() + ptrdiff_t((row + r) * q_width), q_width,
                    all.begin() + ptrdiff_t(r * size_t(chunk.step) * q_width));
      }
      const std::vector<double> result = reference::Attention(problem, all, keys_[s], values_[s]);
      for (size_t r = 0; r < size_t(chunk.rows); ++r) {
        const auto begin = result.begin() + ptrdiff_t(r * size_t(chunk.step) * q_width);
        out.insert(out.end(), begin, begin + ptrdiff_t(q_width));
      }
    }
    return out;
  }

 private:
  static constexpr int kSlots = 2, kSlot = 1;  // layers that share the blocks, and ours

  int64_t element() const { return c_.shape.is_bf16_cache ? 2 : 4; }
  int64_t slot_bytes() const { return 2 * int64_t(width_) * kBlockPositions * element(); }

  std::vector<float> Rounded(std::vector<float> x) const {
    return c_.shape.is_bf16_cache ? FromBf16Bits(ToBf16Bits(x)) : x;
  }

  void Place() {
    const size_t sequences = c_.chunks.size();
    std::vector<int32_t> free(sequences * size_t(max_blocks_));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), std::mt19937(7));
    std::vector<std::byte> cache(free.size() * size_t(kSlots * slot_bytes()), std::byte{0xff});
    std::vector<int32_t> blocks(free.size(), -1), first_blocks;
    for (size_t s = 0; s < sequences; ++s) {
      const int seen_from = int(std::max<int64_t>(0, c_.chunks[s].first_position - c_.shape.window + 1));
      first_blocks.push_back(c_.shape.window == 0 ? 0 : seen_from / kBlockPositions);
      const int length = int(c_.chunks[s].length());
      for (int p = first_blocks[s] * kBlockPositions; p < length; ++p) {
        int32_t& block = blocks[s * size_t(max_blocks_) + size_t(p / kBlockPositions - first_blocks[s])];
        if (block < 0) {
          block = free.back();
          free.pop_back();
        }
        std::byte* slot = cache.data() + (block * kSlots + kSlot) * slot_bytes();
        WriteRow(slot, p, keys_[s]);
        WriteRow(slot + slot_bytes() / 2, p, values_[s]);
      }
    }
    memory_ = DeviceMemory(cache.size());
    CopyToDevice(memory_.data(), cache.data(), cache.size(), gpuStream{});
    Synchronize(gpuStream{});
    blocks_.emplace(blocks);
    first_blocks_.emplace(first_blocks);
  }

  void WriteRow(std::byte* half, int position, const std::vector<float>& rows) const {
    const size_t d = size_t(c_.shape.head_dim);
    for (size_t h = 0; h < size_t(c_.shape.kv_heads); ++h) {
      for (size_t i = 0; i < d; ++i) {
        const float value = rows[size_t(position) * width_ + h * d + i];
        const size_t at = (h * kBlockPositions + size_t(position % kBlockPositions)) * d + i;
        if (c_.shape.is_bf16_cache) {
          reinterpret_cast<uint16_t*>(half)[at] = ToBF16(value).bits;
        } else {
          reinterpret_cast<float*>(half)[at] = value;
        }
      }
    }
  }

  const Case& c_;
  size_t width_;
  int max_blocks_ = 0;
  std::vector<std::vector<float>> keys_, values_;  // a sequence: [positions, kv_heads, head_dim]
  std::vector<int32_t> rows_positions_, rows_sequences_;
  DeviceMemory memory_;
  std::optional<DeviceArray<int32_t>> blocks_, first_blocks_;
};

class AttentionPrefillTest : public GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  const Case& c_ = GetParam();
  const PagedSequences sequences_{c_};
  const size_t width_ = size_t(c_.shape.heads * c_.shape.head_dim), count_ = sequences_.rows() * width_;
  const DeviceArray<int32_t> positions_{sequences_.positions()};
  const DeviceArray<uint16_t> q_hi_{count_}, q_lo_{count_}, q_third_{count_};

  AttentionPrefillArgs Args(const std::vector<float>& q) const {
    const DeviceArray<float> device_q(q);
    ConvertRows({}, {int(sequences_.rows())}, int(width_), {device_q.data(), int64_t(width_)},
                {nullptr, q_hi_.data(), q_lo_.data(), q_third_.data()});
    Synchronize({});
    AttentionPrefillArgs args;
    args.shape = c_.shape;
    args.tiling = ChoosePrefillTiling(c_.shape, c_.shared_bytes);
    args.positions = positions_.data();
    args.q = {q_hi_.data()};
    if (c_.shape.terms == 3) args.q = {q_hi_.data(), q_lo_.data(), q_third_.data()};
    args.cache = sequences_.View();
    return args;
  }

  static void Run(AttentionPrefillArgs args, const std::vector<QueryTile>& tiles) {
    const DeviceArray<QueryTile> device_tiles(tiles);
    args.tiles = device_tiles.data();
    args.tile_count = int(tiles.size());
    AttentionPrefill({}, args);
    Synchronize({});
  }
};

TEST_P(AttentionPrefillTest, IsTheReference) {
  std::vector<float> q = RandomRows(count_, 1.0f);
  if (c_.shape.terms == 1) q = FromBf16Bits(ToBf16Bits(q));
  const DeviceArray<float> out(count_);
  const DeviceArray<uint16_t> out_hi(count_), out_lo(count_), out_third(count_);
  AttentionPrefillArgs args = Args(q);
  EXPECT_EQ(args.tiling.is_small, c_.name[0] == 's');
  args.out = {out.data(), out_hi.data(), out_lo.data(), out_third.data()};
  std::vector<QueryTile> tiles = CutIntoTiles(sequences_.sequences(), args.tiling.rows);
  tiles.push_back({});
  Run(args, tiles);

  const std::vector<float> found = out.ToHost();
  // One term of a float32 cache: q is exact here, keys and values are rounded as well as the weights.
  const double one_term = c_.shape.is_bf16_cache ? 5e-3 : 2e-2;
  EXPECT_LE(RelativeError(found, sequences_.Wanted(q)), c_.shape.terms == 3 ? 1e-5 : one_term);
  EXPECT_EQ(out_hi.ToHost(), ToBf16Bits(found));
  std::vector<float> sum = FromBf16Bits(out_third.ToHost());
  for (const DeviceArray<uint16_t>* term : {&out_lo, &out_hi}) {
    const std::vector<float> values = FromBf16Bits(term->ToHost());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  EXPECT_EQ(sum, found);
}

TEST_P(AttentionPrefillTest, RowsDoNotDependOnEachOther) {
  const DeviceArray<float> together(count_), apart(count_);
  AttentionPrefillArgs args = Args(RandomRows(count_, 1.0f));
  args.out = {together.data()};
  Run(args, CutIntoTiles(sequences_.sequences(), args.tiling.rows));
  args.out = {apart.data()};
  Run(args, CutIntoTiles(sequences_.sequences(), 1));
  EXPECT_EQ(together.ToHost(), apart.ToHost());
}

// {heads, kv_heads, head_dim, window, is_bf16_cache, terms}
INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionPrefillTest,
    ::testing::Values(Case{"head_32", {4, 2, 32, 0, true, 3}, {{0, 37}}},
                      Case{"head_16_one_term", {3, 1, 16, 0, true, 1}, {{0, 25}, {130, 3}}},
                      Case{"head_64_window", {4, 1, 64, 8, true, 3}, {{0, 40}, {200, 9}, {63, 1}}},
                      Case{"head_64_window_one_term", {8, 4, 64, 70, true, 1}, {{150, 40}}},
                      Case{"head_64_gaps", {4, 2, 64, 0, true, 3}, {{3, 20, 7}, {100, 2, 30}}},
                      Case{"head_64_window_gaps", {2, 1, 64, 20, true, 3}, {{30, 35, 5}}},
                      Case{"head_64_float", {2, 2, 64, 0, false, 3}, {{70, 5}, {0, 66}}},
                      Case{"head_48_float_window", {4, 2, 48, 16, false, 3}, {{120, 20}}},
                      Case{"head_256", {8, 1, 256, 512, true, 3}, {{40, 18}}},
                      Case{"head_256_one_term", {8, 1, 256, 33, true, 1}, {{90, 17}}},
                      Case{"head_256_float", {4, 2, 256, 32, false, 3}, {{30, 10}}},
                      Case{"head_256_float_one_term", {8, 1, 256, 32, false, 1}, {{60, 20}}},
                      Case{"head_64_float_one_term", {2, 1, 64, 0, false, 1}, {{60, 9}}},
                      Case{"head_512_float_one_term", {8, 1, 512, 0, false, 1}, {{64, 9}}},
                      Case{"head_80", {2, 1, 80, 0, true, 3}, {{5, 7}}},
                      Case{"head_512", {8, 1, 512, 0, true, 3}, {{60, 9}}},
                      Case{"head_512_one_term", {8, 1, 512, 0, true, 1}, {{64, 9}, {3, 2}}},
                      Case{"head_512_float", {4, 1, 512, 0, false, 3}, {{30, 6}}},
                      Case{"small_256", {8, 1, 256, 20, true, 3}, {{30, 9}}, kFewSharedBytes},
                      Case{"head_256_fits_both", {8, 1, 256, 20, true, 1}, {{30, 5}}, kFewSharedBytes},
                      Case{"small_256_float", {2, 1, 256, 0, false, 3}, {{30, 5}}, kFewSharedBytes},
                      Case{"small_512", {8, 1, 512, 0, true, 3}, {{30, 5}}, kFewSharedBytes},
                      Case{"small_512_one_term", {8, 1, 512, 0, true, 1}, {{30, 5}}, kFewSharedBytes},
                      Case{"small_512_float", {8, 2, 512, 0, false, 3}, {{15, 3}}, kFewSharedBytes}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PrefillTilingTest, CutsRowsByTheirSequence) {
  const std::vector<int32_t> sequences = {0, 0, 0, 0, 0, 2, 1, 1};
  const std::vector<QueryTile> tiles = CutIntoTiles(sequences, 2);
  std::vector<std::array<int32_t, 3>> found;
  for (const QueryTile& tile : tiles) found.push_back({tile.first_row, tile.rows, tile.sequence});
  EXPECT_THAT(found, ::testing::ElementsAre(std::array{0, 2, 0}, std::array{2, 2, 0}, std::array{4, 1, 0},
                                            std::array{5, 1, 2}, std::array{6, 2, 1}));
}

TEST(PrefillTilingTest, RefusesWhatNoKernelIsBuiltFor) {
  const auto expect_unsupported = [](const PrefillShape& shape, int64_t shared_bytes, const std::string& part) {
    try {
      ChoosePrefillTiling(shape, shared_bytes);
      FAIL() << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
    }
  };
  expect_unsupported({8, 1, 520}, kManySharedBytes, "found head_dim 520");
  expect_unsupported({8, 1, 40}, kManySharedBytes, "found head_dim 40");
  expect_unsupported({8, 1, 64, 0, false, 2}, kManySharedBytes, "found 2 bf16 terms");
  expect_unsupported({8, 1, 512}, 65536, "found 65536 bytes of shared memory");
  expect_unsupported({256, 1, 64}, kManySharedBytes, "256 query heads");
}

}  // namespace
}  // namespace lapidary::gpu::testing
