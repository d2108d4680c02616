// Arrays of 16-bit floats convert as single ones do, whatever the instruction set.
#include "ops/half_simd.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace chairlift {
namespace {

TEST(HalfSimdTest, EveryBitPatternWidensAsOneByOne) {
  std::vector<Float16> half(0x10000);
  std::vector<BFloat16> brain(0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) half[i].bits = brain[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(0x10000);
  WidenFloat16(half.data(), wide.data(), 0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const float expected = static_cast<float>(half[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
  WidenBFloat16(brain.data(), wide.data(), 0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const float expected = static_cast<float>(brain[i]);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
  }
}

TEST(HalfSimdTest, RandomBitsNarrowAsOneByOne) {
  std::mt19937 engine(5);
  for (const int n : {0, 1, 15, 16, 17, 100000}) {
    std::vector<float> wide(n);
    for (int i = 0; i < n; ++i) {
      // All floats, and every other time ones in the range of float16.
      const auto bits = static_cast<uint32_t>(engine());
      wide[i] = i % 2 == 0 ? std::bit_cast<float>(bits)
                           : std::bit_cast<float>((bits & 0x8fffffffu) + 0x30000000u);
    }
    std::vector<Float16> half(n);
    std::vector<BFloat16> brain(n);
    NarrowFloat16(wide.data(), half.data(), n);
    NarrowBFloat16(wide.data(), brain.data(), n);
    for (int i = 0; i < n; ++i) {
      if (std::isnan(wide[i])) {
        ASSERT_TRUE(std::isnan(static_cast<float>(half[i])));
        ASSERT_TRUE(std::isnan(static_cast<float>(brain[i])));
        continue;
      }
      ASSERT_EQ(half[i].bits, Float16(wide[i]).bits) << wide[i];
      ASSERT_EQ(brain[i].bits, BFloat16(wide[i]).bits) << wide[i];
    }
  }
}

}  // namespace
}  // namespace chairlift
