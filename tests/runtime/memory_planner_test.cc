#include "runtime/memory_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace chairlift {
namespace {

using ::testing::ElementsAre;

std::vector<MemoryRecord> RandomRecords(std::mt19937& random, int count, int steps) {
  std::vector<MemoryRecord> records;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % steps);
    const int last = std::min<int>(steps - 1, first + static_cast<int>(random() % 6));
    records.push_back({first, last, random() % 5000});
  }
  return records;
}

void ExpectSound(const std::vector<PlacedRecord>& placed, size_t arena_bytes) {
  for (size_t i = 0; i < placed.size(); ++i) {
    const auto& [a, a_offset] = placed[i];
    EXPECT_EQ(a_offset % kArenaAlignment, 0u);
    EXPECT_LE(a_offset + a.bytes, arena_bytes);
    for (size_t j = 0; j < i; ++j) {
      const auto& [b, b_offset] = placed[j];
      if (a.bytes == 0 || b.bytes == 0) continue;
      if (a.last_step < b.first_step || b.last_step < a.first_step) continue;
      EXPECT_TRUE(a_offset + a.bytes <= b_offset || b_offset + b.bytes <= a_offset)
          << "records " << i << " and " << j << " share bytes while both are alive";
    }
  }
}

TEST(MemoryPlannerTest, LiveRecordsNeverShareBytes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const auto records = RandomRecords(random, 1 + static_cast<int>(random() % 60), 25);
    const MemoryPlan plan = PlanMemory(records);
    std::vector<PlacedRecord> placed;
    size_t sum = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      placed.push_back({records[i], plan.offsets[i]});
      sum += (records[i].bytes + 63) / 64 * 64;
    }
    ExpectSound(placed, plan.arena_bytes);
    EXPECT_LE(plan.arena_bytes, sum);
  }
}

TEST(MemoryPlannerTest, SettledRecordsAreKeptClearOf) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    // Some records of a first plan live on into a second one.
    auto first = RandomRecords(random, 20, 10);
    const MemoryPlan before = PlanMemory(first);
    std::vector<PlacedRecord> settled;
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i].last_step < 9) continue;
      settled.push_back({{0, static_cast<int>(random() % 10), first[i].bytes}, before.offsets[i]});
    }
    const auto records = RandomRecords(random, 20, 10);
    const MemoryPlan plan = PlanMemory(records, settled);
    std::vector<PlacedRecord> all = settled;
    for (size_t i = 0; i < records.size(); ++i) all.push_back({records[i], plan.offsets[i]});
    ExpectSound(all, plan.arena_bytes);
  }
}

TEST(MemoryPlannerTest, AChainTakesTwoPlaces) {
  std::vector<MemoryRecord> records;
  for (int i = 0; i < 10; ++i) records.push_back({i, i + 1, 1024});
  EXPECT_EQ(PlanMemory(records).arena_bytes, 2048u);
}

TEST(MemoryPlannerTest, TheSmallestGapThatFitsIsTaken) {
  // At step 1: gaps of 256 and 128 between records that stay; 100 bytes belong in the latter.
  const std::vector<PlacedRecord> settled = {{{0, 9, 64}, 0}, {{0, 9, 64}, 320}, {{0, 9, 64}, 512}};
  const std::vector<MemoryRecord> records = {{1, 1, 100}};
  EXPECT_THAT(PlanMemory(records, settled).offsets, ElementsAre(384));
}

TEST(MemoryPlannerTest, NothingTakesNothing) {
  EXPECT_EQ(PlanMemory({}).arena_bytes, 0u);
  const std::vector<MemoryRecord> empty = {{0, 3, 0}, {1, 2, 0}};
  EXPECT_EQ(PlanMemory(empty).arena_bytes, 0u);
}

}  // namespace
}  // namespace chairlift
