#include "tensor/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace chairlift {
namespace {

TEST(BufferPoolTest, AFreedBufferServesTheNextRequestOfItsSize) {
  BufferPool pool(1 << 20);
  std::shared_ptr<void> first = pool.Acquire(1000);
  void* const address = first.get();
  std::shared_ptr<void> copy = first;
  first.reset();
  EXPECT_NE(pool.Acquire(1000).get(), address) << "handed out while a copy lives";
  copy.reset();
  EXPECT_EQ(pool.Acquire(1010).get(), address);
}

TEST(BufferPoolTest, SizesAreHonouredAndAligned) {
  BufferPool pool(size_t{64} << 20);
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t bytes = random() % (trial % 20 == 0 ? size_t{9} << 20 : size_t{5000});
    const std::shared_ptr<void> buffer = pool.Acquire(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % 64, 0u);
    if (bytes >= (size_t{4} << 20)) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % (size_t{2} << 20), 0u);
    }
    std::memset(buffer.get(), 0xab, bytes);
  }
}

TEST(BufferPoolTest, FreeMemoryIsBounded) {
  BufferPool pool(10000);
  std::vector<std::shared_ptr<void>> held;
  for (int i = 0; i < 20; ++i) held.push_back(pool.Acquire(1024));
  held.clear();
  EXPECT_GT(pool.free_bytes(), 0u);
  EXPECT_LE(pool.free_bytes(), 10000u);
}

TEST(BufferPoolTest, WhatABurstLeftGoesBack) {
  BufferPool pool(size_t{64} << 20);
  std::vector<std::shared_ptr<void>> held;
  for (int i = 0; i < 20; ++i) held.push_back(pool.Acquire(1024));
  held.push_back(pool.Acquire(size_t{8} << 20));
  held.clear();
  pool.ReleaseIdle();  // they were in use since the pool was made
  const size_t burst = pool.free_bytes();
  EXPECT_GE(burst, (size_t{8} << 20) + 20 * 1024);
  // Two are needed at a time from then on.
  for (int i = 0; i < 5; ++i) {
    const auto one = pool.Acquire(1024), two = pool.Acquire(1024);
  }
  pool.ReleaseIdle();
  EXPECT_EQ(pool.free_bytes(), 2 * 1024u);
  { const auto one = pool.Acquire(1024); }
  pool.ReleaseIdle();
  EXPECT_EQ(pool.free_bytes(), 1024u);
  pool.ReleaseIdle();
  EXPECT_EQ(pool.free_bytes(), 0u);
  const auto again = pool.Acquire(1024);
  std::memset(again.get(), 1, 1024);
}

TEST(BufferPoolTest, BuffersOutliveThePool) {
  std::shared_ptr<void> buffer;
  {
    BufferPool pool(1 << 20);
    buffer = pool.Acquire(100);
  }
  std::memset(buffer.get(), 1, 100);
}

TEST(BufferPoolTest, ThreadsNeverShareABuffer) {
  BufferPool pool(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 2000; ++i) {
        const size_t bytes = 8 + random() % 600;
        const std::shared_ptr<void> buffer = pool.Acquire(bytes);
        std::memset(buffer.get(), t, bytes);
        for (size_t b = 0; b < bytes; ++b) {
          ASSERT_EQ(static_cast<const char*>(buffer.get())[b], t);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace chairlift
