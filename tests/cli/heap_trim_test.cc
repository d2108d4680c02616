// When freed memory of the C library's heaps is given back to the system.
#include "cli/heap_trim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace chairlift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A program and its heaps. A trim returns what is free.
struct Program {
  int64_t used = 100 * kMiB;
  int64_t backed = 10 * kMiB;  // free, and not returned
  int64_t returned = 0;
  HeapTrim trim{{.resident = 110 * kMiB, .free = 10 * kMiB}};
  int asked = 0, trims = 0;

  void Use(int64_t bytes) {
    used += bytes;
    const int64_t from_backed = std::min(backed, bytes);
    backed -= from_backed;
    returned -= std::min(returned, bytes - from_backed);
  }
  void Free(int64_t bytes) {
    used -= bytes;
    backed += bytes;
  }
  // As the server does every few seconds.
  void Look() {
    const auto free = [&] {
      ++asked;
      return backed + returned;
    };
    if (!trim.Due(used + backed, free)) return;
    ++trims;
    returned += std::exchange(backed, 0);
    trim.Trimmed({.resident = used, .free = returned});
  }
};

TEST(HeapTrimTest, WhatABurstFreedGoesBackThoughATrimCameWhileItWasInUse) {
  Program program;
  program.Use(900 * kMiB);
  program.Look();
  program.Look();
  program.Free(900 * kMiB);
  program.Look();
  EXPECT_LT(program.backed, HeapTrim::kWorthIt);
  EXPECT_EQ(program.used, 100 * kMiB);
}

TEST(HeapTrimTest, SoDoesWhatCameAndWentBetweenTwoLooks) {
  Program program;
  for (int burst = 0; burst < 5; ++burst) {
    program.Use(500 * kMiB);
    program.Free(500 * kMiB);
    program.Look();
    EXPECT_LT(program.backed, HeapTrim::kWorthIt);
  }
}

TEST(HeapTrimTest, AndWhatIsFreedInSmallSteps) {
  Program program;
  program.Use(900 * kMiB);
  program.Look();
  for (int i = 0; i < 90; ++i) {
    program.Free(10 * kMiB);
    program.Look();
    EXPECT_LT(program.backed, HeapTrim::kWorthIt + 10 * kMiB);
  }
}

TEST(HeapTrimTest, AProgramThatIsIdleOrSteadyIsLeftAlone) {
  Program program;
  for (int i = 0; i < 100; ++i) program.Look();
  EXPECT_EQ(program.trims, 0);
  EXPECT_EQ(program.asked, 0);
  program.Use(900 * kMiB);
  program.Look();
  const int trims = program.trims;
  for (int i = 0; i < 100; ++i) {
    program.Use(20 * kMiB);
    program.Look();
    program.Free(20 * kMiB);
    program.Look();
  }
  EXPECT_EQ(program.trims, trims);
}

}  // namespace
}  // namespace chairlift
