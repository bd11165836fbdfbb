#include "kernels/gpu/elementwise.h"

#include <gmock/gmock.h>

#include <limits>
#include <utility>

#include "device_rows.h"
#include "kernels/reference/reference.h"

namespace lapidary::gpu::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;

class ElementwiseTest : public GpuTest {};

// Where a launcher may write, and what it wrote.
struct Output {
  explicit Output(size_t count) : values(count), hi(count), lo(count), third(count) {}
  RowOutput all() const { return {values.data(), hi.data(), lo.data(), third.data()}; }
  void ExpectTermsOfValues() const {
    const std::vector<float> x = values.ToHost(), h = FromBf16Bits(hi.ToHost()), l = FromBf16Bits(lo.ToHost()),
                             t = FromBf16Bits(third.ToHost());
    EXPECT_EQ(hi.ToHost(), ToBf16Bits(x));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_LE(std::abs(x[i] - h[i] - l[i]), std::abs(x[i]) * 0x1p-16f) << i;
      EXPECT_EQ(h[i] + (l[i] + t[i]), x[i]) << i;
    }
  }
  DeviceArray<float> values;
  DeviceArray<uint16_t> hi, lo, third;
};

TEST_F(ElementwiseTest, RmsNorm) {
  for (const auto& [width, rows] : {std::pair<int, int>{8, 3}, {96, 2}, {264, 2}, {1536, 2}, {5376, 1}, {16384, 1}}) {
    const size_t count = static_cast<size_t>(rows * width);
    const std::vector<float> x = RandomRows(count, 5.0f), weight = RandomRows(static_cast<size_t>(width), 1.0f, 2);
    const DeviceArray<float> device_x(x), device_weight(weight);
    const Output out(count);
    RmsNorm({}, {rows}, width, {device_x.data(), width}, device_weight.data(), 1e-6f, out.all());
    EXPECT_LE(RelativeError(out.values.ToHost(), reference::RmsNorm(x, weight, 1e-6, static_cast<size_t>(width))), 1e-6)
        << width;
    out.ExpectTermsOfValues();
    RmsNorm({}, {rows}, width, {device_x.data(), width}, nullptr, 1e-6f, {device_x.data()});
    EXPECT_LE(RelativeError(device_x.ToHost(), reference::RmsNorm(x, {}, 1e-6, static_cast<size_t>(width))), 1e-6);
  }
}

TEST_F(ElementwiseTest, RmsNormAddsTermsOfStridedRows) {
  const std::vector<float> x = RandomRows(3 * 2 * 24);
  const DeviceArray<float> device(x);
  DeviceArray<float> out(2 * 16);
  const float* first = device.data() + 8;
  RmsNorm({}, {2}, 16, {first, 24, first + 2 * 24, 2, 2 * 24}, nullptr, 1e-6f, {out.data()});
  std::vector<float> sums;
  for (size_t r = 0; r < 2; ++r) {
    for (size_t i = 8; i < 24; ++i) sums.push_back(x[r * 24 + i] + (x[(2 + r) * 24 + i] + x[(4 + r) * 24 + i]));
  }
  EXPECT_LE(RelativeError(out.ToHost(), reference::RmsNorm(sums, {}, 1e-6, 16)), 1e-6);
}

TEST_F(ElementwiseTest, RunsAsManyRowsAsTheDeviceSays) {
  const std::vector<float> x = RandomRows(4 * 16);
  const DeviceArray<float> device(x), out(std::vector<float>(4 * 16, 7.0f));
  const DeviceArray<int32_t> count(std::vector<int32_t>{3});
  RmsNorm({}, {4, count.data()}, 16, {device.data(), 16}, nullptr, 1e-6f, {out.data()});
  ConvertRows({}, {4, count.data()}, 16, {device.data(), 16}, {nullptr, nullptr, nullptr});
  const std::vector<float> found = out.ToHost();
  EXPECT_THAT(std::vector<float>(found.begin() + 48, found.end()), Each(7.0f));
  EXPECT_LE(RelativeError(std::vector<float>(found.begin(), found.begin() + 48),
                          reference::RmsNorm(std::vector<float>(x.begin(), x.begin() + 48), {}, 1e-6, 16)),
            1e-6);
}

class AddRmsNormTest : public GpuTest, public ::testing::WithParamInterface<NextRow> {};
INSTANTIATE_TEST_SUITE_P(Next, AddRmsNormTest, ::testing::Values(NextRow::kNone, NextRow::kHidden, NextRow::kNormed));

TEST_P(AddRmsNormTest, JoinsTheBranchAndGoesOn) {
  for (int width : {8, 80, 1536, 8200}) {
    const size_t n = static_cast<size_t>(width), count = 2 * n;
    const std::vector<float> branch = RandomRows(count, 3.0f), hidden = RandomRows(count, 1.0f, 2),
                             weight = RandomRows(n, 1.0f, 3), next = RandomRows(n, 1.0f, 4);
    const DeviceArray<float> device_branch(branch), device_hidden(hidden), device_weight(weight), device_next(next);
    const DeviceArray<uint64_t> flag(std::vector<uint64_t>{0});
    const Output out(count);
    AddRmsNormTask task{{device_branch.data(), width}, device_weight.data(), 1e-6f, 0.5f, device_hidden.data()};
    task.next = GetParam();
    task.next_weight = device_next.data();
    task.check = {flag.data(), 3};
    if (task.next != NextRow::kNone) task.out = out.all();
    AddRmsNorm({}, {2}, width, task);

    std::vector<double> wanted = reference::RmsNorm(branch, weight, 1e-6, n);
    std::vector<float> rounded;
    for (size_t i = 0; i < count; ++i) {
      wanted[i] = (wanted[i] + hidden[i]) * 0.5;
      rounded.push_back(static_cast<float>(wanted[i]));
    }
    EXPECT_LE(RelativeError(device_hidden.ToHost(), wanted), 1e-6) << width;
    EXPECT_EQ(flag.ToHost()[0], 0u);
    if (task.next == NextRow::kHidden) {
      EXPECT_EQ(out.values.ToHost(), device_hidden.ToHost());
    }
    if (task.next == NextRow::kNormed) {
      EXPECT_LE(RelativeError(out.values.ToHost(), reference::RmsNorm(rounded, next, 1e-6, n)), 1e-6) << width;
    }
    if (task.next != NextRow::kNone) out.ExpectTermsOfValues();
  }
}

TEST_F(ElementwiseTest, ChecksFindTheFirstBadRowOfTheFirstStage) {
  std::vector<float> x(5 * 16, 1.0f);
  x[4 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
  x[2 * 16 + 15] = -std::numeric_limits<float>::infinity();
  x[0] = std::numeric_limits<float>::max();
  const DeviceArray<float> device(x), hidden(std::vector<float>(5 * 16, 1.0f));
  const DeviceArray<uint64_t> flag(std::vector<uint64_t>{0});
  CheckFinite({}, {2}, 16, device.data(), {flag.data(), 0});
  EXPECT_EQ(flag.ToHost()[0], 0u);
  CheckFinite({}, {5}, 16, device.data(), {flag.data(), 9});
  EXPECT_EQ(WhereNonFinite(flag.ToHost()[0]).stage, 9u);
  EXPECT_EQ(WhereNonFinite(flag.ToHost()[0]).row, 2u);
  AddRmsNormTask task{{device.data(), 16}, nullptr, 1e-6f, 1.0f, hidden.data()};
  task.check = {flag.data(), 7};
  AddRmsNorm({}, {5}, 16, task);
  EXPECT_EQ(WhereNonFinite(flag.ToHost()[0]).stage, 7u);
  EXPECT_EQ(WhereNonFinite(flag.ToHost()[0]).row, 2u);
  CheckFinite({}, {1}, 16, device.data() + 4 * 16, {flag.data(), 8});
  EXPECT_EQ(WhereNonFinite(flag.ToHost()[0]).stage, 7u);
}

TEST_F(ElementwiseTest, RopeTableIsAccurateFarOut) {
  const std::vector<int32_t> positions = {0, 1, 511, 131071};
  std::vector<float> frequencies;
  for (int j = 0; j < 37; ++j) frequencies.push_back(std::pow(10000.0f, -static_cast<float>(j) / 37));
  const DeviceArray<int32_t> device_positions(positions);
  const DeviceArray<float> device_frequencies(frequencies), cos(4 * 37), sin(4 * 37);
  RopeTable({}, {4}, device_positions.data(), device_frequencies.data(), 37, cos.data(), sin.data());
  const std::vector<float> found_cos = cos.ToHost(), found_sin = sin.ToHost();
  for (size_t r = 0; r < 4; ++r) {
    for (size_t j = 0; j < 37; ++j) {
      const double angle = static_cast<float>(positions[r]) * frequencies[j];
      EXPECT_NEAR(found_cos[r * 37 + j], std::cos(angle), 3e-7) << angle;
      EXPECT_NEAR(found_sin[r * 37 + j], std::sin(angle), 3e-7) << angle;
    }
  }
}

struct HeadCase {
  int heads, head_dim, pairs;
};
class HeadsTest : public GpuTest, public ::testing::WithParamInterface<HeadCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, HeadsTest,
                         ::testing::Values(HeadCase{2, 16, 8}, HeadCase{3, 32, 4}, HeadCase{4, 64, 8},
                                           HeadCase{8, 256, 128}, HeadCase{2, 512, 64}, HeadCase{1, 48, 6},
                                           HeadCase{2, 64, 0}));

TEST_P(HeadsTest, NormRotateHeads) {
  const auto [heads, head_dim, pairs] = GetParam();
  const size_t d = static_cast<size_t>(head_dim), width = static_cast<size_t>(heads) * d, rows = 3;
  const std::vector<float> x = RandomRows(rows * width, 2.0f), weight = RandomRows(d, 1.0f, 2);
  const std::vector<double> positions = {0, 5, 17};
  std::vector<float> cos, sin;
  for (double position : positions) {
    for (int j = 0; j < pairs; ++j) {
      const double angle = position * std::pow(10000.0, -2.0 * j / head_dim);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const DeviceArray<float> device_x(x), device_weight(weight), device_cos(cos), device_sin(sin);
  const Output out(x.size());
  NormRotateHeads({}, {3}, {heads, head_dim}, {device_x.data(), heads * head_dim}, device_weight.data(), 1e-6f,
                  {device_cos.data(), device_sin.data(), pairs}, out.all());
  const std::vector<double> normed = reference::RmsNorm(x, weight, 1e-6, d);
  std::vector<double> wanted;
  for (size_t at = 0; at < x.size(); at += d) {
    const std::vector<float> head(normed.begin() + static_cast<ptrdiff_t>(at),
                                  normed.begin() + static_cast<ptrdiff_t>(at + d));
    for (double value : reference::Rotate(head, static_cast<size_t>(pairs), 10000.0, positions[at / width])) {
      wanted.push_back(value);
    }
  }
  EXPECT_LE(RelativeError(out.values.ToHost(), wanted), 1e-6);
  out.ExpectTermsOfValues();
}

TEST_F(ElementwiseTest, EmbedRows) {
  const std::vector<uint16_t> table = ToBf16Bits(RandomRows(5 * 24));
  const std::vector<int32_t> ids = {4, 0, 4, 2};
  const DeviceArray<uint16_t> device_table(table);
  const DeviceArray<int32_t> device_ids(ids);
  const Output out(4 * 24);
  EmbedRows({}, {4}, 24, device_ids.data(), device_table.data(), 4.9f, out.all());
  std::vector<float> wanted;
  for (int32_t id : ids) {
    for (size_t i = 0; i < 24; ++i) wanted.push_back(ToFloat(BF16{table[static_cast<size_t>(id) * 24 + i]}) * 4.9f);
  }
  EXPECT_THAT(out.values.ToHost(), ElementsAreArray(wanted));
  out.ExpectTermsOfValues();
}

TEST_F(ElementwiseTest, GeluMulSaturates) {
  std::vector<float> gate = RandomRows(57, 4.0f);
  for (float x : {27.0f, -27.0f, 1e4f, -1e4f, 0.0f, -0.0f, 1e-20f}) gate.push_back(x);
  const DeviceArray<float> device_gate(gate), up(std::vector<float>(gate.size(), 2.0f));
  const Output out(gate.size());
  GeluMul({}, {2}, 32, {device_gate.data(), 32}, {up.data(), 32}, out.all());
  const std::vector<float> found = out.values.ToHost();
  for (size_t i = 0; i < gate.size(); ++i) {
    const double wanted = 2.0 * reference::GeluTanh(gate[i]);
    EXPECT_NEAR(found[i], wanted, 1e-6 * std::max(1.0, std::abs(wanted))) << gate[i];
  }
  out.ExpectTermsOfValues();
}

TEST_F(ElementwiseTest, GeluMulReadsBothFromTheTermsOfOneProduct) {
  const int rows = 3, width = 40;
  const std::vector<float> y = RandomRows(3 * 3 * 80);
  const DeviceArray<float> device(y);
  DeviceArray<uint16_t> hi(3 * 40);
  const int64_t part = int64_t{rows} * 2 * width;
  const float* rest = device.data() + part;
  GeluMul({}, {rows}, width, {device.data(), 2 * width, rest, 2, part},
          {device.data() + width, 2 * width, rest + width, 2, part}, {nullptr, hi.data()});
  const std::vector<float> found = FromBf16Bits(hi.ToHost());
  for (size_t r = 0; r < 3; ++r) {
    for (size_t i = 0; i < 40; ++i) {
      const auto sum = [&](size_t at) { return y[at] + (y[3 * 80 + at] + y[6 * 80 + at]); };
      const double wanted = reference::GeluTanh(sum(r * 80 + i)) * sum(r * 80 + 40 + i);
      EXPECT_NEAR(found[r * 40 + i], wanted, std::abs(wanted) * 0x1p-8 + 1e-6);
    }
  }
}

TEST_F(ElementwiseTest, PerLayerInputs) {
  const size_t rows = 3, all_layers = 4, first = 1, layers = 2;
  for (size_t width : {8, 72, 256, 520}) {
    const std::vector<float> context = RandomRows(rows * layers * width, 9.0f), weight = RandomRows(width, 1.0f, 2);
    const std::vector<uint16_t> table = ToBf16Bits(RandomRows(6 * all_layers * width, 1.0f, 3));
    const std::vector<int32_t> ids = {5, 0, 3};
    const DeviceArray<float> device_context(context), device_weight(weight);
    const DeviceArray<int32_t> device_ids(ids);
    PinnedMemory pinned(table.size() * sizeof(uint16_t));
    std::copy(table.begin(), table.end(), static_cast<uint16_t*>(pinned.data()));
    DeviceArray<float> out(context.size());
    PerLayerInputsTask task{{device_context.data(), static_cast<int64_t>(layers * width)}, 0.25f, device_weight.data()};
    task.eps = 1e-6f;
    task.ids = device_ids.data();
    task.table = static_cast<const uint16_t*>(pinned.data()) + first * width;
    task.table_stride = static_cast<int64_t>(all_layers * width);
    task.token_scale = 3.0f;
    task.layers = static_cast<int>(layers);
    task.width = static_cast<int>(width);
    PerLayerInputs({}, {static_cast<int>(rows)}, task, out.data());

    std::vector<float> scaled = context;
    for (float& x : scaled) x *= 0.25f;
    std::vector<double> wanted = reference::RmsNorm(scaled, weight, 1e-6, width);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const size_t row = i / (layers * width), column = first * width + i % (layers * width);
      const float token = ToFloat(BF16{table[static_cast<size_t>(ids[row]) * all_layers * width + column]});
      wanted[i] = (wanted[i] + 3.0 * token) * std::sqrt(0.5);
    }
    EXPECT_LE(RelativeError(out.ToHost(), wanted), 1e-6) << width;
  }
}

TEST_F(ElementwiseTest, Softcap) {
  const std::vector<float> x = RandomRows(2 * 104, 40.0f);
  const DeviceArray<float> device(x);
  Softcap({}, {2}, 104, {device.data(), 104}, 30.0f, device.data());
  const std::vector<float> found = device.ToHost();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(found[i], 30.0 * std::tanh(x[i] / 30.0), 5e-6) << x[i];
}

TEST_F(ElementwiseTest, NoSoftcapOnlyAdds) {
  const std::vector<float> x = RandomRows(2 * 24);
  const DeviceArray<float> device(x), out(24);
  Softcap({}, {1}, 24, {device.data(), 24, device.data() + 24, 1}, 0.0f, out.data());
  const std::vector<float> found = out.ToHost();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], x[i] + x[24 + i]);
}

TEST_F(ElementwiseTest, ConvertRowsSplitsWhatItAdds) {
  const std::vector<float> x = RandomRows(2 * 3 * 520);
  const DeviceArray<float> device(x);
  const Output out(3 * 520);
  ConvertRows({}, {3}, 520, {device.data(), 520, device.data() + 3 * 520, 1}, out.all());
  std::vector<float> wanted;
  for (size_t i = 0; i < 3 * 520; ++i) wanted.push_back(x[i] + x[3 * 520 + i]);
  EXPECT_THAT(out.values.ToHost(), ElementsAreArray(wanted));
  out.ExpectTermsOfValues();
}

TEST_F(ElementwiseTest, GatherRows) {
  const std::vector<float> x = RandomRows(6 * 24);
  const DeviceArray<float> device(x);
  const DeviceArray<int32_t> kept(std::vector<int32_t>{1, 5});
  DeviceArray<float> out(2 * 24);
  GatherRows({}, {2}, 24, {device.data(), 24}, kept.data(), out.data());
  std::vector<float> wanted(x.begin() + 24, x.begin() + 48);
  wanted.insert(wanted.end(), x.begin() + 5 * 24, x.end());
  EXPECT_THAT(out.ToHost(), ElementsAreArray(wanted));
}

TEST_F(ElementwiseTest, NoRowsIsNoLaunch) {
  RmsNorm({}, {0}, 16, {}, nullptr, 1e-6f, {});
  EmbedRows({}, {0}, 16, nullptr, nullptr, 1.0f, {});
  RopeTable({}, {3}, nullptr, nullptr, 0, nullptr, nullptr);
  PerLayerInputs({}, {0}, {}, nullptr);
  Synchronize({});
}

}  // namespace
}  // namespace lapidary::gpu::testing
