#include "kernels/gpu/attention_decode.h"

#include <gmock/gmock.h>

#include <optional>

#include "base/error.h"
#include "kernels/reference/reference.h"
#include "paged_cache.h"

namespace lapidary::gpu {
namespace {

using testing::DeviceArray;
using testing::DeviceRows;
using testing::PagedCache;
using testing::RandomFloats;

class AttentionDecodeTest : public testing::GpuTest {};

constexpr double kTheta = 10000.0, kEps = 1e-6;

DeviceInfo Device(int multiprocessors) {
  return {.name = "test", .multiprocessors = multiprocessors, .shared_bytes_per_block = 227 * 1024};
}

struct Layer {
  AttentionDecodeShape shape;
  PagedCache cache;
  std::vector<PagedCache::Content> contents;  // [sequences]
  std::vector<float> weight;
};

Layer MakeLayer(const AttentionDecodeShape& shape, const std::vector<PagedCache::Sequence>& sequences) {
  Layer layer{shape, {shape.kv_heads, shape.head_dim, shape.is_bf16 ? DType::kBF16 : DType::kF32, sequences}, {}, {}};
  for (size_t s = 0; s < sequences.size(); ++s) {
    layer.contents.push_back(layer.cache.Write(static_cast<int32_t>(s), sequences[s].positions,
                                               static_cast<unsigned>(10 + 2 * s),
                                               1.5f / std::sqrt(static_cast<float>(shape.head_dim))));
  }
  layer.cache.Upload();
  layer.weight = RandomFloats(static_cast<size_t>(shape.head_dim), 5);
  return layer;
}

struct Rows {
  std::vector<int32_t> positions, sequences;
  std::vector<float> q;  // [rows, heads * head_dim + 4]
};

size_t Width(const AttentionDecodeShape& shape) { return static_cast<size_t>(shape.heads * shape.head_dim); }

Rows MakeRows(const AttentionDecodeShape& shape, const std::vector<int32_t>& positions,
              const std::vector<int32_t>& sequences) {
  return {positions, sequences, RandomFloats(positions.size() * (Width(shape) + 4), 3)};
}

Rows OnlyRow(const AttentionDecodeShape& shape, const Rows& rows, size_t row) {
  const auto at = [&](size_t r) { return rows.q.begin() + static_cast<ptrdiff_t>(r * (Width(shape) + 4)); };
  return {{rows.positions[row]}, {rows.sequences[row]}, {at(row), at(row + 1)}};
}

// A layer's attention with its workspace, as a backend keeps it.
class Runner {
 public:
  Runner(const Layer& layer, int max_rows, int multiprocessors, int64_t max_positions = 131072)
      : layer_(layer),
        plan_(PlanAttentionDecode(layer.shape, max_rows, max_positions, Device(multiprocessors))),
        own_workspace_(std::vector<unsigned char>(plan_.workspace_bytes, 0)),
        workspace_(own_workspace_.data()) {}

  void ShareWorkspace(const Runner& other) { workspace_ = other.workspace_; }

  std::vector<float> Run(const Rows& rows) const {
    const DeviceArray<float> out(std::vector<float>(rows.positions.size() * Width(layer_.shape), NAN));
    Run(rows, nullptr, {.values = out.data()});
    return out.ToHost();
  }

  // `rest` [2, ...]: other parts of q, or null.
  void Run(const Rows& rows, const float* rest, const RowOutput& out) const {
    const int pairs = layer_.shape.head_dim / 4;
    const DeviceRows device = testing::MakeRows(rows.positions, rows.sequences, layer_.shape.head_dim, pairs, kTheta);
    const DeviceArray<float> q(rows.q), weight(layer_.weight);
    AttentionDecode(gpuStream{}, plan_,
                    {.q = {q.data(), static_cast<int64_t>(Width(layer_.shape) + 4), rest, rest == nullptr ? 0 : 2,
                           static_cast<int64_t>(rows.q.size())},
                     .q_weight = weight.data(),
                     .eps = static_cast<float>(kEps),
                     .rope = device.Rope(),
                     .rows = device.View(),
                     .cache = layer_.cache.View(),
                     .out = out,
                     .workspace = workspace_},
                    true);
    Synchronize(gpuStream{});
  }
  const AttentionDecodePlan& plan() const { return plan_; }

 private:
  const Layer& layer_;
  AttentionDecodePlan plan_;
  DeviceArray<unsigned char> own_workspace_;
  unsigned char* workspace_;
};

std::vector<double> Reference(const Layer& layer, const Rows& rows, size_t row) {
  const AttentionDecodeShape& shape = layer.shape;
  const auto d = static_cast<ptrdiff_t>(shape.head_dim);
  std::vector<float> q;
  for (ptrdiff_t h = 0; h < shape.heads; ++h) {
    const auto begin = rows.q.begin() + static_cast<ptrdiff_t>(row * (Width(shape) + 4)) + h * d;
    const auto normed = reference::RmsNorm({begin, begin + d}, layer.weight, kEps, static_cast<size_t>(d));
    const auto rotated =
        reference::Rotate({normed.begin(), normed.end()}, static_cast<size_t>(d / 4), kTheta, rows.positions[row]);
    q.insert(q.end(), rotated.begin(), rotated.end());
  }
  const auto& content = layer.contents[static_cast<size_t>(rows.sequences[row])];
  return reference::Attention({static_cast<size_t>(shape.heads), static_cast<size_t>(shape.kv_heads),
                               static_cast<size_t>(shape.head_dim), shape.window, rows.positions[row]},
                              q, content.k, content.v);
}

// The largest difference, relative to the largest element.
double Difference(const float* found, const std::vector<double>& wanted) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(found[i])) return INFINITY;
    difference = std::max(difference, std::abs(found[i] - wanted[i]));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return difference / largest;
}

// As float32: an error of 2^-22 of |score| ~ 10 passes through exp, as tensor cores cut sums off where others round.
constexpr double kTolerance = 1e-5;

void ExpectAgrees(const Layer& layer, const Runner& runner, const Rows& rows) {
  const std::vector<float> found = runner.Run(rows);
  for (size_t r = 0; r < rows.positions.size(); ++r) {
    EXPECT_LE(Difference(found.data() + r * Width(layer.shape), Reference(layer, rows, r)), kTolerance)
        << "head_dim " << layer.shape.head_dim << " window " << layer.shape.window << " bf16 " << layer.shape.is_bf16
        << " position " << rows.positions[r];
  }
}

TEST_F(AttentionDecodeTest, OneRowAgreesWithTheReference) {
  for (AttentionDecodeShape shape : {AttentionDecodeShape{8, 1, 512, 0},
                                     {8, 1, 256, 100},
                                     {8, 2, 128, 0},
                                     {4, 1, 64, 65},
                                     {16, 1, 64, 0},
                                     {6, 3, 32, 5}}) {
    for (const bool is_bf16 : {true, false}) {
      shape.is_bf16 = is_bf16;
      const Layer layer = MakeLayer(shape, {{300, 0}});
      const Runner runner(layer, 1, 132);
      for (const int32_t position : {0, 15, 63, 64, 130, 299}) {
        ExpectAgrees(layer, runner, MakeRows(shape, {position}, {0}));
      }
    }
  }
}

// The full model's shape at the length of its window: more segments than blocks.
TEST_F(AttentionDecodeTest, FullWindow) {
  const AttentionDecodeShape shape{8, 1, 256, 512};
  const Layer layer = MakeLayer(shape, {{777, 4}});
  const Runner runner(layer, 8, 132);
  EXPECT_EQ(runner.plan().max_segments, 8);
  ExpectAgrees(layer, runner, MakeRows(shape, {775, 776}, {0, 0}));
}

// Enough segments that they are merged in groups.
TEST_F(AttentionDecodeTest, LongContext) {
  AttentionDecodeShape shape{2, 1, 32, 0};
  for (const bool is_bf16 : {true, false}) {
    shape.is_bf16 = is_bf16;
    const Layer layer = MakeLayer(shape, {{5000, 0}});
    for (const int multiprocessors : {17, 31, 60}) {
      const Runner runner(layer, 2, multiprocessors);
      EXPECT_EQ(runner.plan().max_segments, multiprocessors);
      ExpectAgrees(layer, runner, MakeRows(shape, {4998, 4999}, {0, 0}));
    }
  }
}

TEST_F(AttentionDecodeTest, LargeScores) {
  const AttentionDecodeShape shape{8, 1, 64, 0};
  Layer layer = MakeLayer(shape, {{400, 0}});
  for (float& w : layer.weight) w *= 30.0f;
  const Rows rows = MakeRows(shape, {399}, {0});
  EXPECT_LE(Difference(Runner(layer, 1, 132).Run(rows).data(), Reference(layer, rows, 0)), 2e-4);
}

TEST_F(AttentionDecodeTest, RowsOfSeveralSequences) {
  for (const AttentionDecodeShape& shape : {AttentionDecodeShape{8, 1, 64, 0}, {8, 2, 32, 70}}) {
    const Layer layer = MakeLayer(shape, {{40, 0}, {400, 0}, {200, 0}, {1, 0}});
    const Rows rows = MakeRows(shape, {37, 38, 39, 399, 199, 0}, {0, 0, 0, 1, 2, 3});
    ExpectAgrees(layer, Runner(layer, 8, 132), rows);
    ExpectAgrees(layer, Runner(layer, 64, 132), rows);
    ExpectAgrees(layer, Runner(layer, 8, 3), rows);  // fewer blocks than segments
  }
}

// More rows than lanes, so that lanes count several rows each.
TEST_F(AttentionDecodeTest, ManyRows) {
  const AttentionDecodeShape shape{4, 1, 32, 0};
  std::vector<PagedCache::Sequence> sequences;
  std::vector<int32_t> positions, ids;
  for (int32_t s = 0; s < 70; ++s) {
    sequences.push_back({1 + s * 37 % 150, 0});
    positions.push_back(sequences.back().positions - 1);
    ids.push_back(s);
  }
  const Layer layer = MakeLayer(shape, sequences);
  ExpectAgrees(layer, Runner(layer, 256, 4), MakeRows(shape, positions, ids));
}

// Only the window's blocks are there: what lies before must not be touched.
TEST_F(AttentionDecodeTest, BlocksBeforeTheWindowMayBeGone) {
  const AttentionDecodeShape shape{4, 1, 32, 100};
  const Layer whole = MakeLayer(shape, {{400, 0}}), tail = MakeLayer(shape, {{400, 4}});
  const Rows rows = MakeRows(shape, {398, 399}, {0, 0});
  EXPECT_EQ(Runner(tail, 8, 132).Run(rows), Runner(whole, 8, 132).Run(rows));
}

// The bits of a row are the same alone, among others, in any launch of the few-rows kind, and the second time.
TEST_F(AttentionDecodeTest, BitsDependOnNoOtherRow) {
  for (const AttentionDecodeShape& shape :
       {AttentionDecodeShape{8, 1, 256, 130}, {8, 1, 512, 0, false}, {4, 2, 64, 0}, {2, 1, 32, 0}}) {
    const Layer layer = MakeLayer(shape, {{250, 0}, {1400, 0}});
    const Rows rows = MakeRows(shape, {1397, 1398, 1399, 243, 244, 245, 246, 247}, {1, 1, 1, 0, 0, 0, 0, 0});
    const Runner together(layer, 8, 20), alone(layer, 1, 20);
    const std::vector<float> found = together.Run(rows);
    EXPECT_EQ(together.Run(rows), found);
    for (size_t r = 0; r < 8; ++r) {
      EXPECT_EQ(std::memcmp(alone.Run(OnlyRow(shape, rows, r)).data(), found.data() + r * Width(shape),
                            Width(shape) * sizeof(float)),
                0)
          << shape.head_dim << " row " << r;
    }
  }
}

// Projections as a product of three terms leaves them, and results as the next product takes them.
TEST_F(AttentionDecodeTest, TermsInAndOut) {
  const AttentionDecodeShape shape{8, 1, 64, 0};
  const Layer layer = MakeLayer(shape, {{300, 0}});
  const Rows rows = MakeRows(shape, {40, 299}, {0, 0});
  const Runner runner(layer, 2, 132);
  std::vector<float> sum = rows.q;
  const std::vector<float> rest = RandomFloats(2 * rows.q.size(), 4);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += rest[i] + rest[sum.size() + i];
  const std::vector<float> wanted = runner.Run({rows.positions, rows.sequences, sum});
  const DeviceArray<uint16_t> hi(wanted.size()), lo(wanted.size()), third(wanted.size());
  const DeviceArray<float> device_rest(rest);
  runner.Run(rows, device_rest.data(), {nullptr, hi.data(), lo.data(), third.data()});
  const std::vector<uint16_t> found_hi = hi.ToHost(), found_lo = lo.ToHost(), found_third = third.ToHost();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const BF16 term = ToBF16(wanted[i]);
    ASSERT_EQ(found_hi[i], term.bits) << i;
    const BF16 second = ToBF16(wanted[i] - ToFloat(term));
    ASSERT_EQ(found_lo[i], second.bits) << i;
    ASSERT_EQ(found_third[i], ToBF16(wanted[i] - ToFloat(term) - ToFloat(second)).bits) << i;
  }
}

// Layers of different kinds use one workspace in turn.
TEST_F(AttentionDecodeTest, PlansShareTheWorkspace) {
  const AttentionDecodeShape shape{8, 1, 64, 0}, other_shape{8, 4, 32, 0};
  const Layer layer = MakeLayer(shape, {{600, 0}}), other_layer = MakeLayer(other_shape, {{600, 0}});
  const Rows rows = MakeRows(shape, {598, 599}, {0, 0}), other_rows = MakeRows(other_shape, {598, 599}, {0, 0});
  const Runner many(layer, 64, 132);
  Runner few(other_layer, 8, 132);
  ASSERT_LE(few.plan().workspace_bytes, many.plan().workspace_bytes);
  few.ShareWorkspace(many);
  for (int i = 0; i < 2; ++i) {
    ExpectAgrees(layer, many, rows);
    ExpectAgrees(other_layer, few, other_rows);
  }
}

TEST_F(AttentionDecodeTest, NoRows) {
  const AttentionDecodeShape shape{4, 1, 32, 0};
  const Layer layer = MakeLayer(shape, {{4, 0}});
  EXPECT_TRUE(Runner(layer, 8, 132).Run(MakeRows(shape, {}, {})).empty());
}

TEST_F(AttentionDecodeTest, PlansFitTheDevice) {
  for (const int head_dim : {32, 64, 128, 256, 512}) {
    for (const bool is_bf16 : {true, false}) {
      for (const int rows : {1, 8, 9, 256}) {
        const AttentionDecodePlan plan = PlanAttentionDecode({8, 1, head_dim, 0, is_bf16}, rows, 131072, Device(132));
        EXPECT_LE(plan.shared_bytes, static_cast<size_t>(227 * 1024));
        EXPECT_EQ(plan.max_segments, rows <= 8 ? 132 : 16);
        if (rows > 8 && is_bf16) {
          EXPECT_LE(2 * (plan.shared_bytes + 1024), static_cast<size_t>(228 * 1024)) << head_dim;
        }
      }
    }
  }
}

TEST_F(AttentionDecodeTest, RefusesWhatItCannotDo) {
  const auto kind_of = [](const AttentionDecodeShape& shape, int rows,
                          int64_t shared_bytes) -> std::optional<ErrorKind> {
    DeviceInfo device = Device(132);
    device.shared_bytes_per_block = shared_bytes;
    try {
      PlanAttentionDecode(shape, rows, 1000, device);
    } catch (const Error& error) {
      return error.kind();
    }
    return std::nullopt;
  };
  EXPECT_EQ(kind_of({8, 1, 256, 0}, 8, 227 * 1024), std::nullopt);
  EXPECT_EQ(kind_of({8, 1, 96, 0}, 8, 227 * 1024), ErrorKind::kInvalidArgument);
  EXPECT_EQ(kind_of({8, 1, 256, 0}, kDecodeMaxRows + 1, 227 * 1024), ErrorKind::kInvalidArgument);
  EXPECT_EQ(kind_of({8, 1, 512, 0, false}, 8, 99 * 1024), ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of({64, 64, 64, 0}, 512, 227 * 1024), ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace lapidary::gpu
