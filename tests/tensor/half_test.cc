#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "chairlift/tensor.h"

namespace chairlift {
namespace {

TEST(Float16Test, EveryFiniteBitPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(half);
    if (std::isnan(wide)) continue;
    EXPECT_EQ(Float16(wide).bits, half.bits) << bits;
  }
}

TEST(Float16Test, RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(Float16(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(static_cast<float>(Float16(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520.0f))));
  EXPECT_EQ(static_cast<float>(Float16(65519.0f)), 65504.0f);
}

TEST(BFloat16Test, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace chairlift
