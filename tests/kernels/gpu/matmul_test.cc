#include "kernels/gpu/matmul.h"

#include <gmock/gmock.h>

#include "device_rows.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/reference/reference.h"

namespace lapidary::gpu::testing {
namespace {

class ManyRowsMatmulTest : public GpuTest {
 protected:
  ManyRowsMatmul matmul_;
  DeviceMemory memory_{1 << 16};
  MatmulWorkspace workspace_{memory_.data(), memory_.size_bytes()};
  Stream stream_;
};

TEST_F(ManyRowsMatmulTest, OneTermIsTheProductOfRoundedRows) {
  for (size_t rows : {1, 9, 33}) {
    const size_t outputs = 24, cols = 40;
    const std::vector<uint16_t> x = ToBf16Bits(RandomRows(rows * cols)),
                                w = ToBf16Bits(RandomRows(outputs * cols, 1.0f, 2));
    const DeviceArray<uint16_t> device_x(x), device_w(w);
    const DeviceArray<float> y(rows * outputs);
    matmul_.Run({}, {static_cast<int64_t>(rows), 24, 40}, device_x.data(), device_w.data(), y.data(), workspace_);
    EXPECT_LE(RelativeError(y.ToHost(), reference::Matmul(FromBf16Bits(x), FromBf16Bits(w), rows, outputs, cols)),
              1e-6);
  }
}

TEST_F(ManyRowsMatmulTest, ThreeTermsAreAsGoodAsFloat32) {
  const size_t rows = 11, outputs = 48, cols = 136;
  const std::vector<float> x = RandomRows(rows * cols);
  const std::vector<uint16_t> w = ToBf16Bits(RandomRows(outputs * cols, 1.0f, 2));
  const DeviceArray<float> device_x(x), y(3 * rows * outputs), sum(rows * outputs);
  const DeviceArray<uint16_t> terms(3 * rows * cols), device_w(w);
  ConvertRows({}, {11}, 136, {device_x.data(), 136},
              {nullptr, terms.data(), terms.data() + rows * cols, terms.data() + 2 * rows * cols});
  matmul_.Run({}, {33, 48, 136}, terms.data(), device_w.data(), y.data(), workspace_);
  ConvertRows({}, {11}, 48, {y.data(), 48, y.data() + rows * outputs, 2, rows * outputs}, {sum.data()});
  EXPECT_LE(RelativeError(sum.ToHost(), reference::Matmul(x, FromBf16Bits(w), rows, outputs, cols)), 2e-6);
}

TEST_F(ManyRowsMatmulTest, LeavesTheRestOfStridedRowsAlone) {
  const std::vector<uint16_t> x = ToBf16Bits(RandomRows(3 * 8)), w = ToBf16Bits(RandomRows(8 * 8, 1.0f, 2));
  const DeviceArray<uint16_t> device_x(x), device_w(w);
  const DeviceArray<float> y(std::vector<float>(3 * 20, 5.0f));
  matmul_.Run({}, {3, 8, 8, 20}, device_x.data(), device_w.data(), y.data() + 4, workspace_);
  const std::vector<double> wanted = reference::Matmul(FromBf16Bits(x), FromBf16Bits(w), 3, 8, 8);
  const std::vector<float> found = y.ToHost();
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t row = i / 20, column = i % 20;
    const bool inside = column >= 4 && column < 12;
    EXPECT_NEAR(found[i], inside ? wanted[row * 8 + column - 4] : 5.0, 1e-5) << i;
  }
}

TEST_F(ManyRowsMatmulTest, RunsFromAGraph) {
  const std::vector<uint16_t> w = ToBf16Bits(RandomRows(16 * 16, 1.0f, 2));
  const DeviceArray<uint16_t> x(std::vector<uint16_t>(9 * 16, 0)), device_w(w);
  const DeviceArray<float> y(9 * 16);
  const auto run = [&] { matmul_.Run(stream_.get(), {9, 16, 16}, x.data(), device_w.data(), y.data(), workspace_); };
  run();
  const Graph graph = Graph::Capture(stream_.get(), run);
  const std::vector<uint16_t> later = ToBf16Bits(RandomRows(9 * 16));
  CopyToDevice(x.data(), later.data(), later.size() * sizeof(uint16_t), stream_.get());
  graph.Launch(stream_.get());
  Synchronize(stream_.get());
  EXPECT_LE(RelativeError(y.ToHost(), reference::Matmul(FromBf16Bits(later), FromBf16Bits(w), 9, 16, 16)), 1e-6);
}

TEST_F(ManyRowsMatmulTest, NoRowsIsNoProduct) { matmul_.Run({}, {0, 16, 16}, nullptr, nullptr, nullptr, workspace_); }

}  // namespace
}  // namespace lapidary::gpu::testing
