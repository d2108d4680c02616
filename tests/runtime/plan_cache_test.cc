#include "runtime/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace chairlift {
namespace {

struct Thing {
  int number;
  int64_t bytes;
  int64_t held_bytes() const { return bytes; }
};
using ThingPtr = std::shared_ptr<const Thing>;
using Cache = PlanCache<ThingPtr>;

PlanKey Key(int64_t number) {
  PlanKey key;
  key.Add(number);
  return key;
}

// What the cache has under `number`, and whether it had to be built.
std::pair<int, bool> Get(Cache& cache, int number, int64_t bytes = 10) {
  bool built = false;
  const auto thing = cache.Get(Key(number), [&]() -> StatusOr<ThingPtr> {
    built = true;
    return std::make_shared<Thing>(Thing{number, bytes});
  });
  EXPECT_TRUE(thing.ok());
  return {(*thing)->number, built};
}

TEST(PlanCacheTest, KeepsAsManyAsTheBytesAllow) {
  Cache small(1000, 2);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(Get(small, i, 5), std::pair(i, true));
  EXPECT_EQ(small.size(), 200);
  EXPECT_EQ(small.held_bytes(), 1000);
  for (int i = 100; i < 300; ++i) EXPECT_EQ(Get(small, i, 5), std::pair(i, false));
  EXPECT_EQ(Get(small, 99, 5), std::pair(99, true));

  Cache large(1000, 2);
  for (int i = 0; i < 10; ++i) Get(large, i, 300);
  EXPECT_EQ(large.size(), 3);
}

TEST(PlanCacheTest, TheLeastRecentlyUsedGoesFirst) {
  Cache cache(30, 1);
  for (const int i : {1, 2, 3}) Get(cache, i);
  EXPECT_EQ(Get(cache, 1), std::pair(1, false));
  EXPECT_EQ(Get(cache, 4), std::pair(4, true));  // 2 goes
  EXPECT_EQ(Get(cache, 1), std::pair(1, false));
  EXPECT_EQ(Get(cache, 3), std::pair(3, false));
  EXPECT_EQ(Get(cache, 2), std::pair(2, true));
}

TEST(PlanCacheTest, AFewAreKeptWhateverTheyHold) {
  Cache cache(1000, 2);
  for (const int i : {1, 2, 3}) Get(cache, i, 5000);
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(Get(cache, 3), std::pair(3, false));
  EXPECT_EQ(Get(cache, 2), std::pair(2, false));
  Get(cache, 4, 10);
  Get(cache, 5, 10);
  EXPECT_EQ(cache.size(), 2);
  EXPECT_EQ(cache.held_bytes(), 20);
}

TEST(PlanCacheTest, AFailureIsReturnedAndNotKept) {
  Cache cache(1000, 1);
  const auto fail = []() -> StatusOr<ThingPtr> { return InvalidArgument("no"); };
  EXPECT_EQ(Message(cache.Get(Key(1), fail).status()), "no");
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(Get(cache, 1), std::pair(1, true));
}

TEST(PlanCacheTest, ABuildThatFindsNoMemoryFailsAndLeavesNobodyWaiting) {
  Cache cache(1000, 1);
  const auto thing = cache.Get(Key(1), []() -> StatusOr<ThingPtr> { throw std::bad_alloc(); });
  EXPECT_EQ(thing.status().code(), absl::StatusCode::kResourceExhausted) << thing.status();
  EXPECT_EQ(Get(cache, 1), std::pair(1, true));
}

TEST(PlanCacheTest, ThreadsThatMeetWaitForTheFirst) {
  constexpr int kThreads = 8;
  constexpr int kKeys = 50;
  Cache cache(1 << 20, 1);
  std::vector<std::atomic<int>> builds(kKeys);
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      ++ready;
      while (ready < kThreads) {
      }
      for (int k = 0; k < kKeys; ++k) {
        const auto thing = cache.Get(Key(k), [&]() -> StatusOr<ThingPtr> {
          ++builds[k];
          std::this_thread::yield();
          if (k % 2 == 1) return InvalidArgument("odd");
          return std::make_shared<Thing>(Thing{k, 1});
        });
        ASSERT_EQ(thing.ok(), k % 2 == 0);
        if (thing.ok()) {
          ASSERT_EQ((*thing)->number, k);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int k = 0; k < kKeys; k += 2) EXPECT_EQ(builds[k], 1) << k;
}

TEST(PlanCacheTest, OtherKeysDoNotWait) {
  Cache cache(1000, 1);
  const auto outer = cache.Get(Key(1), [&]() -> StatusOr<ThingPtr> {
    // While 1 is being built, on this very thread: waiting would never end.
    EXPECT_EQ(Get(cache, 2), std::pair(2, true));
    return std::make_shared<Thing>(Thing{1, 1});
  });
  EXPECT_TRUE(outer.ok());
  EXPECT_EQ(cache.size(), 2);
}

TEST(PlanCacheTest, AWaitingThreadGetsWhatTheFirstBuilt) {
  Cache cache(1000, 1);
  std::atomic<bool> building{false};
  std::atomic<bool> go_on{false};
  std::thread first([&] {
    const auto thing = cache.Get(Key(1), [&]() -> StatusOr<ThingPtr> {
      building = true;
      while (!go_on) std::this_thread::yield();
      return std::make_shared<Thing>(Thing{1, 1});
    });
    EXPECT_TRUE(thing.ok());
  });
  while (!building) std::this_thread::yield();
  std::thread second([&] { EXPECT_EQ(Get(cache, 1), std::pair(1, false)); });
  EXPECT_EQ(cache.size(), 0);
  go_on = true;
  first.join();
  second.join();
  EXPECT_EQ(cache.size(), 1);
}

}  // namespace
}  // namespace chairlift
