#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "support/failing_allocator.h"

namespace chairlift {
namespace {

using testing::FailingAllocator;

class MemoryReserveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FailingAllocator::Available()) GTEST_SKIP();
    MemoryReserve::Install();
    OutOfMemory().IgnoreError();
    ASSERT_TRUE(MemoryReserve::Ready());
    ASSERT_EQ(MemoryReserve::slices(), MemoryReserve::kSlices);
  }
};

TEST_F(MemoryReserveTest, WhatMayNotFailFindsMemoryWhereNoneIsLeft) {
  FailingAllocator::LimitTo(0);
  std::vector<std::unique_ptr<char[]>> kept;
  int slices = 0;
  {
    const MemoryReserve::Use use;
    kept.reserve(100);
    for (int i = 0; i < 100; ++i) kept.push_back(std::make_unique<char[]>(10000));
    slices = MemoryReserve::slices();
  }
  const bool ready = MemoryReserve::Ready();
  FailingAllocator::Stop();
  EXPECT_EQ(slices, MemoryReserve::kSlices - 2);
  EXPECT_TRUE(ready);
  kept.clear();
  EXPECT_TRUE(MemoryReserve::Ready());
  EXPECT_EQ(MemoryReserve::slices(), MemoryReserve::kSlices);
}

TEST_F(MemoryReserveTest, WhatMayFailFailsAndLeavesTheReserve) {
  FailingAllocator::LimitTo(0);
  const MemoryReserve::Use use;
  const Status status = CatchOutOfMemory([] {
    std::vector<char> large(100000);
    return large.empty() ? Internal("empty") : absl::OkStatus();
  });
  const int slices = MemoryReserve::slices();
  FailingAllocator::Stop();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(slices, MemoryReserve::kSlices);
}

TEST_F(MemoryReserveTest, IsNotReadyWhereMuchOfItIsGone) {
  FailingAllocator::LimitTo(0);
  bool ready = true;
  {
    const MemoryReserve::Use use;
    const std::vector<char> large(MemoryReserve::kSlices / 2 * MemoryReserve::kSliceBytes);
    ready = MemoryReserve::Ready();
  }
  FailingAllocator::Stop();
  EXPECT_FALSE(ready);
  EXPECT_TRUE(MemoryReserve::Ready());
}

TEST_F(MemoryReserveTest, ContainersThatNoMemoryCouldHoldAreOutOfMemoryToo) {
  const Status status = CatchOutOfMemory([] {
    std::vector<int64_t> huge;
    huge.reserve(huge.max_size() + 1);
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace chairlift
