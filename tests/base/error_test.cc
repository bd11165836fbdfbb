#include "base/error.h"

#include <gtest/gtest.h>

#include <exception>
#include <thread>

#include "base/dtype.h"

namespace lapidary {
namespace {

TEST(ErrorTest, CarriesKindAndMessageAcrossThreads) {
  std::exception_ptr caught;
  std::thread([&] {
    try {
      Throw(ErrorKind::kDevice, "layer 3: found NaN, wanted finite numbers");
    } catch (...) {
      caught = std::current_exception();
    }
  }).join();
  try {
    std::rethrow_exception(caught);
  } catch (const std::runtime_error& base) {
    const auto* error = dynamic_cast<const Error*>(&base);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->kind(), ErrorKind::kDevice);
    EXPECT_STREQ(error->what(), "layer 3: found NaN, wanted finite numbers");
  }
}

TEST(DTypeTest, SizesAndNames) {
  EXPECT_EQ(SizeOf(DType::kF32), 4u);
  EXPECT_EQ(SizeOf(DType::kF16), 2u);
  EXPECT_EQ(SizeOf(DType::kBF16), 2u);
  EXPECT_EQ(NameOf(DType::kBF16), "BF16");
}

TEST(DTypeTest, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(ToBF16(1.0f).bits, 0x3F80);
  EXPECT_EQ(ToBF16(-0.0f).bits, 0x8000);
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);  // half way, even below
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);  // half way, even above
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x3F808001u)).bits, 0x3F81);
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x7F7FFFFFu)).bits, 0x7F80);  // the largest float rounds to infinity
  EXPECT_EQ(ToBF16(std::bit_cast<float>(0x7F800000u)).bits, 0x7F80);
  const uint16_t nan = ToBF16(std::bit_cast<float>(0x7F800001u)).bits;  // a NaN whose payload is cut off stays one
  EXPECT_EQ(nan & 0x7F80, 0x7F80);
  EXPECT_NE(nan & 0x7F, 0);
}

TEST(DTypeTest, EveryBfloat16SurvivesARoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const BF16 value{static_cast<uint16_t>(bits)};
    if ((bits & 0x7F80) == 0x7F80 && (bits & 0x7F) != 0) continue;  // NaN
    ASSERT_EQ(ToBF16(ToFloat(value)).bits, value.bits);
  }
}

}  // namespace
}  // namespace lapidary
