#include "backends/gpu/weight_upload.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "kernels/gpu/runtime.h"
#include "testing/test_backend.h"

namespace lapidary::gpu {
namespace {

class WeightUploadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoTestBackend(); !why.empty()) GTEST_SKIP() << why;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      std::vector<uint8_t> bytes(sizes_[i]);
      for (size_t j = 0; j < bytes.size(); ++j) bytes[j] = static_cast<uint8_t>(j * 7 + i + j / 251);
      weights_.push_back(std::move(bytes));
    }
    size_t offset = 0;
    for (const std::vector<uint8_t>& bytes : weights_) {
      pieces_.push_back({static_cast<std::byte*>(device_.data()) + offset, bytes.data(), bytes.size()});
      offset += bytes.size();
    }
  }

  // Smaller than a buffer, empty, and of several buffers with a remainder.
  const std::vector<size_t> sizes_ = {1000, 0, (size_t{40} << 20) + 12345, 3};
  std::vector<std::vector<uint8_t>> weights_;
  DeviceMemory device_{(size_t{40} << 20) + 12345 + 1003};
  std::vector<UploadPiece> pieces_;
};

TEST_F(WeightUploadTest, EveryByteArrives) {
  uint64_t last = 0, total = 0;
  UploadWeights(pieces_, [&](std::string_view, uint64_t done, uint64_t of) {
    EXPECT_GE(done, last);
    last = done;
    total = of;
  });
  EXPECT_TRUE(total == 0 || total == device_.size_bytes());
  std::vector<uint8_t> found(device_.size_bytes());
  CopyToHost(found.data(), device_.data(), found.size(), nullptr);
  Synchronize(nullptr);
  std::vector<uint8_t> wanted;
  for (const std::vector<uint8_t>& bytes : weights_) wanted.insert(wanted.end(), bytes.begin(), bytes.end());
  EXPECT_TRUE(found == wanted);
}

TEST_F(WeightUploadTest, NothingToDo) { UploadWeights({}, {}); }

}  // namespace
}  // namespace lapidary::gpu
