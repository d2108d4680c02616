#include "device/cpu/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace chairlift {
namespace {

TEST(MemoryTest, ReadsTheLimitsOfControlGroups) {
  EXPECT_EQ(ParseMemoryLimit("1073741824\n"), int64_t{1} << 30);
  EXPECT_EQ(ParseMemoryLimit("9223372036854771712"), 9223372036854771712);
  EXPECT_EQ(ParseMemoryLimit("max\n"), std::nullopt);
  EXPECT_EQ(ParseMemoryLimit(""), std::nullopt);
  EXPECT_EQ(ParseMemoryLimit("-1"), std::nullopt);
  EXPECT_EQ(ParseMemoryLimit("12 kB"), std::nullopt);
  EXPECT_EQ(ParseMemoryLimit("99999999999999999999"), std::nullopt);
}

TEST(MemoryTest, IsTheMachinesAtMost) {
  const int64_t all = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  EXPECT_GT(UsableMemoryBytes(), 0);
  EXPECT_LE(UsableMemoryBytes(), all);
}

TEST(MemoryTest, HeedsTheProcesssOwnLimit) {
  constexpr size_t kLimit = size_t{1} << 30;
  constexpr size_t kRoom = size_t{16} << 20;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit limited{.rlim_cur = kLimit, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limited), 0);
  void* const room =
      mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) {
    setrlimit(RLIMIT_DATA, &before);
    GTEST_SKIP() << "the process has more already, as a sanitizer's shadow does";
  }
  munmap(room, kRoom);
  const int64_t usable = UsableMemoryBytes();
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_LE(usable, static_cast<int64_t>(kLimit));
}

}  // namespace
}  // namespace chairlift
