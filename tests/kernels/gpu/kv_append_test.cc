#include "kernels/gpu/kv_append.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "kernels/reference/reference.h"
#include "paged_cache.h"

namespace lapidary::gpu {
namespace {

using testing::DeviceArray;
using testing::DeviceRows;
using testing::PagedCache;
using testing::RandomFloats;

constexpr double kTheta = 10000.0, kEps = 1e-6;

struct Case {
  int kv_heads, head_dim, pairs;
  bool v_is_k;
};

class KvAppendTest : public testing::GpuTest, public ::testing::WithParamInterface<Case> {
 protected:
  // Rows of three sequences, the second of which has lost its first blocks.
  const std::vector<int32_t> positions_{63, 64, 65, 200, 0}, sequences_{0, 0, 0, 1, 2};

  size_t Width() const { return static_cast<size_t>(GetParam().kv_heads * GetParam().head_dim); }
  PagedCache Cache(DType type) const {
    PagedCache cache(GetParam().kv_heads, GetParam().head_dim, type, {{66, 0}, {201, 2}, {1, 0}});
    cache.Upload();
    return cache;
  }

  void Run(const PagedCache& cache) const {
    const Case& c = GetParam();
    const DeviceRows rows = testing::MakeRows(positions_, sequences_, c.head_dim, c.pairs, kTheta);
    const DeviceArray<float> qkv(qkv_), weight(weight_);
    const auto stride = static_cast<int64_t>(8 + 2 * Width());
    KvAppendArgs args{.k = {qkv.data() + 8, stride},
                      .v = {qkv.data() + 8 + (c.v_is_k ? 0 : Width()), stride},
                      .k_weight = weight.data(),
                      .eps = static_cast<float>(kEps),
                      .kv_heads = c.kv_heads,
                      .head_dim = c.head_dim,
                      .rope = rows.Rope(),
                      .rows = rows.View(),
                      .cache = cache.View()};
    KvAppend(gpuStream{}, args, 8, false);
    Synchronize(gpuStream{});
  }

  std::vector<float> Projection(size_t row, int head, bool is_v) const {
    const Case& c = GetParam();
    const size_t begin =
        row * (8 + 2 * Width()) + 8 + (is_v && !c.v_is_k ? Width() : 0) + static_cast<size_t>(head * c.head_dim);
    return {qkv_.begin() + static_cast<ptrdiff_t>(begin), qkv_.begin() + static_cast<ptrdiff_t>(begin) + c.head_dim};
  }

  const std::vector<float> qkv_ = RandomFloats(5 * (8 + 2 * Width()), 1);
  const std::vector<float> weight_ = RandomFloats(static_cast<size_t>(GetParam().head_dim), 2);
};

TEST_P(KvAppendTest, AgreesWithTheReference) {
  const Case& c = GetParam();
  const PagedCache cache = Cache(DType::kF32);
  Run(cache);
  const std::vector<unsigned char> found = cache.Read();
  for (size_t r = 0; r < positions_.size(); ++r) {
    for (int h = 0; h < c.kv_heads; ++h) {
      const auto normed = [&](bool is_v) {
        const auto x = reference::RmsNorm(Projection(r, h, is_v), is_v ? std::vector<float>() : weight_, kEps,
                                          static_cast<size_t>(c.head_dim));
        return std::vector<float>(x.begin(), x.end());
      };
      const std::vector<float> v = normed(true);
      const std::vector<double> k =
          reference::Rotate(normed(false), static_cast<size_t>(c.pairs), kTheta, positions_[r]);
      for (size_t i = 0; i < k.size(); ++i) {
        float stored[2];
        std::memcpy(&stored[0], found.data() + cache.Offset(sequences_[r], positions_[r], h, false) + i * 4, 4);
        std::memcpy(&stored[1], found.data() + cache.Offset(sequences_[r], positions_[r], h, true) + i * 4, 4);
        ASSERT_NEAR(stored[0], k[i], 4e-6) << r << " " << h << " " << i;
        ASSERT_NEAR(stored[1], v[i], 2e-6) << r << " " << h << " " << i;
      }
    }
  }
}

TEST_P(KvAppendTest, BfloatIsTheRoundedFloat) {
  const Case& c = GetParam();
  const PagedCache exact = Cache(DType::kF32), rounded = Cache(DType::kBF16);
  Run(exact);
  Run(rounded);
  const std::vector<unsigned char> wanted = exact.Read(), found = rounded.Read();
  for (size_t r = 0; r < positions_.size(); ++r) {
    for (int vector = 0; vector < 2 * c.kv_heads; ++vector) {
      const int head = vector / 2;
      const bool is_v = vector % 2 == 1;
      for (size_t i = 0; i < static_cast<size_t>(c.head_dim); ++i) {
        float value;
        uint16_t bits;
        std::memcpy(&value, wanted.data() + exact.Offset(sequences_[r], positions_[r], head, is_v) + i * 4, 4);
        std::memcpy(&bits, found.data() + rounded.Offset(sequences_[r], positions_[r], head, is_v) + i * 2, 2);
        ASSERT_EQ(bits, ToBF16(value).bits) << r << " " << vector << " " << i;
      }
    }
  }
}

TEST_P(KvAppendTest, WritesNothingElse) {
  const Case& c = GetParam();
  const PagedCache cache = Cache(DType::kBF16);
  Run(cache);
  std::vector<unsigned char> found = cache.Read();
  for (size_t r = 0; r < positions_.size(); ++r) {
    for (int h = 0; h < c.kv_heads; ++h) {
      for (const bool is_v : {false, true}) {
        std::memset(found.data() + cache.Offset(sequences_[r], positions_[r], h, is_v), 0xff,
                    static_cast<size_t>(c.head_dim) * 2);
      }
    }
  }
  EXPECT_EQ(found, cache.memory());
}

INSTANTIATE_TEST_SUITE_P(Shapes, KvAppendTest,
                         ::testing::Values(Case{1, 512, 64, false}, Case{1, 256, 128, false}, Case{4, 256, 128, true},
                                           Case{3, 128, 64, false}, Case{2, 64, 8, true}, Case{1, 32, 16, false}),
                         [](const auto& instance) {
                           return std::to_string(instance.param.kv_heads) + "x" +
                                  std::to_string(instance.param.head_dim);
                         });

TEST(KvAppendErrors, RefusesOtherHeadSizes) {
  try {
    KvAppendArgs args;
    args.kv_heads = 1;
    args.head_dim = 48;
    KvAppend(gpuStream{}, args, 1, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("head_dim: found 48"));
  }
}

}  // namespace
}  // namespace lapidary::gpu
