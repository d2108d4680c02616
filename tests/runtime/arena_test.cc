// A worker's memory: grows with what is asked for, keeps what was written, and goes back.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/executable.h"

namespace chairlift {
namespace {

constexpr size_t kSmall = 10'000;
constexpr size_t kLarge = size_t{64} << 20;
constexpr int kManyRuns = 100;

TEST(ArenaTest, KeepsWhatWasWrittenWhenItGrows) {
  Arena arena;
  std::byte* data = arena.Reserve(kSmall);
  std::fill_n(data, kSmall, std::byte{7});
  data = arena.Reserve(kLarge);
  EXPECT_TRUE(std::all_of(data, data + kSmall, [](std::byte b) { return b == std::byte{7}; }));
  EXPECT_GE(arena.held_bytes(), kLarge);
}

TEST(ArenaTest, HandsBackWhatNobodyUsedForLong) {
  Arena arena;
  std::fill_n(arena.Reserve(kLarge), kLarge, std::byte{1});
  for (int run = 0; run < kManyRuns; ++run) {
    std::byte* data = arena.Reserve(kSmall);
    std::fill_n(data, kSmall, std::byte{2});
  }
  EXPECT_LT(arena.held_bytes(), 2 * kSmall);
  EXPECT_EQ(arena.Reserve(kSmall)[kSmall - 1], std::byte{2});
  // What comes back is as good as new.
  std::byte* data = arena.Reserve(kLarge);
  std::fill_n(data, kLarge, std::byte{3});
  EXPECT_EQ(data[kLarge - 1], std::byte{3});
  EXPECT_GE(arena.held_bytes(), kLarge);
}

TEST(ArenaTest, KeepsWhatIsUsedNowAndThen) {
  Arena arena;
  for (int run = 0; run < kManyRuns; ++run) arena.Reserve(run % 10 == 0 ? kLarge : kSmall);
  EXPECT_GE(arena.held_bytes(), kLarge);
}

TEST(ArenaTest, HandsBackEverythingOnceItIsIdle) {
  Arena arena;
  std::byte* const data = arena.Reserve(kLarge);
  std::fill_n(data, kLarge, std::byte{1});
  arena.Nested().Reserve(kLarge);
  arena.ReleaseIdle();
  EXPECT_GE(arena.held_bytes(), kLarge) << "it was used since the last time";
  arena.ReleaseIdle();
  EXPECT_EQ(arena.held_bytes(), 0u);
  EXPECT_EQ(arena.Nested().held_bytes(), 0u);
  // It stays what it was, and is as good as new.
  EXPECT_EQ(arena.Reserve(kLarge), data);
  std::fill_n(data, kLarge, std::byte{2});
  EXPECT_GE(arena.held_bytes(), kLarge);
  arena.ReleaseIdle();
  EXPECT_EQ(data[kLarge - 1], std::byte{2});
}

}  // namespace
}  // namespace chairlift
