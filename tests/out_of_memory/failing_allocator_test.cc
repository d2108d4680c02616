// The allocator that the other tests of this program rely on.
#include "support/failing_allocator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <new>
#include <vector>

namespace chairlift::testing {
namespace {

TEST(FailingAllocatorTest, FailsTheNthAttemptAndNoOther) {
  if (!FailingAllocator::Available()) GTEST_SKIP();
  for (int n = 1; n <= 3; ++n) {
    std::vector<bool> failed(3);
    FailingAllocator::FailNth(n);
    for (int i = 0; i < 3; ++i) {
      ::operator delete(::operator new(8, std::nothrow));
      failed[static_cast<size_t>(i)] = FailingAllocator::failures() == (i >= n - 1 ? 1 : 0);
    }
    EXPECT_EQ(FailingAllocator::Stop(), 3);
    EXPECT_EQ(failed, std::vector<bool>(3, true)) << n;
  }
}

TEST(FailingAllocatorTest, FailsWhatPassesTheLimit) {
  if (!FailingAllocator::Available()) GTEST_SKIP();
  FailingAllocator::LimitTo(1000);
  void* small = ::operator new(600, std::nothrow);
  void* second = ::operator new(600, std::nothrow);
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::operator delete(small);
  void* third = ::operator new(600, std::nothrow);
  FailingAllocator::Stop();
  EXPECT_NE(small, nullptr);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(mapped, MAP_FAILED);
  EXPECT_NE(third, nullptr);
  ::operator delete(third);
}

TEST(FailingAllocatorTest, ExemptThreadsNeitherFailNorCount) {
  if (!FailingAllocator::Available()) GTEST_SKIP();
  FailingAllocator::FailNth(1);
  {
    const FailingAllocator::Exempt exempt;
    EXPECT_NE(std::make_unique<int>(3), nullptr);
  }
  EXPECT_EQ(FailingAllocator::Stop(), 0);
}

}  // namespace
}  // namespace chairlift::testing
