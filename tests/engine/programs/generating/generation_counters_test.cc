#include "engine/programs/generating/generation_counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace chairlift {
namespace {

using std::chrono::milliseconds;

TimePoint At(int ms) { return TimePoint() + milliseconds(ms); }

// Values in the bucket whose upper bound is this.
uint64_t Below(const Histogram& histogram, double bound) {
  const auto at = std::find(histogram.bounds.begin(), histogram.bounds.end(), bound);
  EXPECT_NE(at, histogram.bounds.end());
  return histogram.counts[static_cast<size_t>(at - histogram.bounds.begin())];
}

uint64_t Count(const Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), uint64_t{0});
}

TEST(GenerationCountersTest, ARequestWaitsIsLiveAndLeaves) {
  BlockPool pool(8, 16);
  GenerationCounters counters;
  GenerationTimes times;
  times.Arrive(counters, At(0));
  EXPECT_EQ(counters.Read(pool).waiting, 1);
  times.Start();
  times.Start();  // its second piece
  EXPECT_EQ(counters.Read(pool).waiting, 0);
  EXPECT_EQ(counters.Read(pool).running, 1);
  EXPECT_EQ(counters.Read(pool).prompt_tokens, 0);
  times.Token(40, At(30));
  times.Token(40, At(34));
  counters.SetBack();
  times.Token(40, At(41));
  times.Leave();
  times.Leave();
  BlockPool::Sequence sequence(pool);
  ASSERT_TRUE(sequence.Grow(17));
  const GenerationStatistics read = counters.Read(pool);
  EXPECT_EQ(read.waiting, 0);
  EXPECT_EQ(read.running, 0);
  EXPECT_EQ(read.prompt_tokens, 40);
  EXPECT_EQ(read.generation_tokens, 3);
  EXPECT_EQ(read.preemptions, 1);
  EXPECT_EQ(read.blocks, 8);
  EXPECT_EQ(read.blocks_used, 2);
  EXPECT_EQ(read.block_tokens, pool.block_tokens());
  EXPECT_EQ(read.tokens_used, 17);
  EXPECT_EQ(Count(read.first_token_seconds), 1);
  EXPECT_EQ(Below(read.first_token_seconds, 5e-2), 1);
  EXPECT_DOUBLE_EQ(read.first_token_seconds.sum, 0.030);
  EXPECT_EQ(Below(read.between_tokens_seconds, 5e-3), 1);
  EXPECT_EQ(Below(read.between_tokens_seconds, 1e-2), 1);
  EXPECT_DOUBLE_EQ(read.between_tokens_seconds.sum, 0.011);
}

TEST(GenerationCountersTest, WhoIsCancelledLeavesWithItsEnd) {
  const BlockPool pool(8, 16);
  GenerationCounters counters;
  {
    GenerationTimes waiting, live;
    waiting.Arrive(counters, At(0));
    live.Arrive(counters, At(0));
    live.Start();
    EXPECT_EQ(counters.Read(pool).waiting + counters.Read(pool).running, 2);
  }
  EXPECT_EQ(counters.Read(pool).waiting, 0);
  EXPECT_EQ(counters.Read(pool).running, 0);
}

TEST(GenerationCountersTest, TimesBeyondAllBoundsCount) {
  DurationHistogram histogram;
  histogram.Observe(std::chrono::seconds(1000));
  histogram.Observe(Duration(0));
  EXPECT_EQ(histogram.Read().counts.front(), 1);
  EXPECT_EQ(histogram.Read().counts.back(), 1);
  EXPECT_EQ(histogram.Read().counts.size(), histogram.Read().bounds.size() + 1);
}

}  // namespace
}  // namespace chairlift
