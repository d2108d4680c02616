// Costs by rows and length: worked cases, and that they stay in order whatever is learnt.
#include "batching/length_costs.h"

#include <gmock/gmock.h>

#include <random>

#include "base/status.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

LengthCosts Square() {
  LengthCosts costs;
  EXPECT_TRUE(costs
                  .AddType({{4, 100, microseconds(1000)},
                            {1, 100, microseconds(400)},
                            {1, 20, microseconds(100)},
                            {4, 20, microseconds(220)}})
                  .ok());
  return costs;
}

TEST(LengthCostsTest, InterpolatesInBothDirections) {
  const LengthCosts costs = Square();
  EXPECT_EQ(costs.Cost(0, 1, 20), microseconds(100));
  EXPECT_EQ(costs.Cost(0, 4, 100), microseconds(1000));
  EXPECT_EQ(costs.Cost(0, 2, 20), microseconds(140));
  EXPECT_EQ(costs.Cost(0, 1, 60), microseconds(250));
  EXPECT_EQ(costs.Cost(0, 2, 60), microseconds(370));  // between 140 and 600
}

TEST(LengthCostsTest, IsConstantBelowTheGridAndInProportionBeyondIt) {
  LengthCosts costs = Square();
  EXPECT_EQ(costs.Cost(0, 0, 1), microseconds(100));
  EXPECT_EQ(costs.Cost(0, 8, 20), microseconds(440));
  EXPECT_EQ(costs.Cost(0, 1, 200), microseconds(800));
  EXPECT_EQ(costs.Cost(0, 8, 200), microseconds(4000));
  costs.Scale(2);
  EXPECT_EQ(costs.Cost(0, 8, 200), microseconds(8000));
}

TEST(LengthCostsTest, RowsOfNoLengthAreAGridOfOneLine) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(10)}, {101, 0, microseconds(110)}}).ok());
  EXPECT_EQ(costs.Cost(0, 51, 0), microseconds(60));
  EXPECT_EQ(costs.Cost(0, 51, 7), microseconds(60));
  EXPECT_EQ(costs.Cost(0, 202, 0), microseconds(220));
  const LengthCosts::Sample samples[] = {{1, 0, microseconds(10)}, {101, 0, microseconds(110)}};
  for (const int32_t rows : {0, 1, 51, 101, 202}) {
    EXPECT_EQ(Duration(static_cast<int64_t>(CostNsOfRows(samples, rows))), costs.Cost(0, rows, 0));
  }
}

TEST(LengthCostsTest, GapsAreFilledAndNoiseIsSmoothedUpwards) {
  LengthCosts costs;
  ASSERT_TRUE(costs
                  .AddType({{1, 10, microseconds(100)},
                            {2, 10, microseconds(90)},
                            {4, 10, microseconds(200)},
                            {1, 20, microseconds(80)},
                            {2, 20, microseconds(160)}})
                  .ok());
  EXPECT_EQ(costs.Cost(0, 2, 10), microseconds(100));
  EXPECT_EQ(costs.Cost(0, 1, 20), microseconds(100));
  EXPECT_EQ(costs.Cost(0, 4, 20), microseconds(320));
}

TEST(LengthCostsTest, NoRowsAreWhatATaskTakesOnce) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{0, 0, microseconds(3)}, {2, 0, microseconds(10)}}).ok());
  EXPECT_EQ(costs.FixedCost(0), microseconds(3));
  EXPECT_EQ(costs.Cost(0, 1, 0), microseconds(10));
  EXPECT_THAT(costs.Samples(0), SizeIs(2));
  costs.Scale(2);
  EXPECT_EQ(costs.FixedCost(0), microseconds(6));
  EXPECT_FALSE(costs.AddType({{0, 0, microseconds(3)}}).ok());
}

TEST(LengthCostsTest, RefusesWhatIsNoTable) {
  LengthCosts costs;
  const auto message = [&costs](std::vector<LengthCosts::Sample> samples) {
    return chairlift::Message(costs.AddType(samples));
  };
  EXPECT_THAT(message({}), HasSubstr("no costs"));
  EXPECT_THAT(message({{0, 1, microseconds(1)}}), HasSubstr("0 rows of length 1"));
  EXPECT_THAT(message({{1, -1, microseconds(1)}}), HasSubstr("length -1"));
  EXPECT_THAT(message({{1, 1, Duration(0)}}), HasSubstr("for 0 ns"));
  EXPECT_THAT(message({{4, 9, microseconds(1)}, {4, 8, microseconds(1)}, {4, 9, microseconds(2)}}),
              HasSubstr("4 rows of length 9 is given twice"));
}

TEST(LengthCostsTest, LearnsWhatBatchesTake) {
  LengthCosts costs = Square();
  for (int i = 0; i < 200; ++i) costs.Learn(0, 2, 60, microseconds(500));
  EXPECT_NEAR(static_cast<double>(costs.Cost(0, 2, 60).count()), 500e3, 5e3);
  for (int i = 0; i < 200; ++i) costs.Learn(0, 4, 100, microseconds(2000));
  EXPECT_NEAR(static_cast<double>(costs.Cost(0, 8, 200).count()), 8000e3, 80e3);
}

// What one size tells is mostly of the machine: the others follow, and how they compare stays.
TEST(LengthCostsTest, LearnsThatTheMachineIsSlowerFromAnySizeOfAnyType) {
  LengthCosts costs = Square();
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(10)}, {64, 0, microseconds(640)}}).ok());
  const Duration before = costs.Cost(0, 1, 20);
  const auto ratio = [](Duration a, Duration b) {
    return static_cast<double>(a.count()) / static_cast<double>(b.count());
  };
  for (int i = 0; i < 200; ++i) costs.Learn(1, 64, 0, microseconds(1280));
  EXPECT_NEAR(ratio(costs.Cost(1, 64, 0), microseconds(1280)), 1, 0.01);
  EXPECT_NEAR(ratio(costs.Cost(0, 1, 20), before), 2, 0.06);
  EXPECT_NEAR(ratio(costs.Cost(1, 64, 0), costs.Cost(1, 1, 0)), 64, 2);
  for (int i = 0; i < 200; ++i) costs.Learn(1, 64, 0, microseconds(640));
  EXPECT_NEAR(ratio(costs.Cost(0, 1, 20), before), 1, 0.01);
}

// One size that is dearer than it was timed to be, beside another that is not.
TEST(LengthCostsTest, LearnsHowSizesCompareSlowly) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(10)}, {64, 0, microseconds(640)}}).ok());
  for (int i = 0; i < 2000; ++i) {
    costs.Learn(0, 1, 0, microseconds(15));
    costs.Learn(0, 64, 0, microseconds(640));
  }
  EXPECT_NEAR(static_cast<double>(costs.Cost(0, 1, 0).count()), 15e3, 1e3);
  EXPECT_NEAR(static_cast<double>(costs.Cost(0, 64, 0).count()), 640e3, 40e3);
}

TEST(LengthCostsTest, OneStrayMeasurementCountsForLittle) {
  LengthCosts costs = Square();
  costs.Learn(0, 4, 100, std::chrono::seconds(10));
  EXPECT_LE(costs.Cost(0, 4, 100), microseconds(1392));
  costs.Learn(0, 4, 100, Duration(0));
  EXPECT_GE(costs.Cost(0, 4, 100), microseconds(1391));
}

TEST(LengthCostsTest, StaysInOrderWhateverItLearns) {
  std::mt19937 random(1);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  LengthCosts costs;
  std::vector<LengthCosts::Sample> samples;
  for (const auto& [rows, length] : SizesToMeasure(16, 300, 2000)) {
    samples.push_back({rows, length, microseconds(pick(1, 1000))});
  }
  ASSERT_TRUE(costs.AddType(samples).ok());
  for (int round = 0; round < 300; ++round) {
    costs.Learn(0, pick(0, 20), pick(0, 400), microseconds(pick(1, 5000)));
    const int rows = pick(0, 20);
    const int length = pick(0, 400);
    const Duration here = costs.Cost(0, rows, length);
    EXPECT_GT(here, Duration(0));
    EXPECT_LE(here, costs.Cost(0, rows + pick(0, 4), length + pick(0, 50)));
  }
  // What it keeps is what it knows.
  LengthCosts again;
  ASSERT_TRUE(again.AddType(costs.Samples(0)).ok());
  for (int round = 0; round < 100; ++round) {
    const int rows = pick(1, 20);
    const int length = pick(1, 400);
    EXPECT_NEAR(static_cast<double>(again.Cost(0, rows, length).count()),
                static_cast<double>(costs.Cost(0, rows, length).count()), 200);
  }
}

TEST(SizesToMeasureTest, ArePowersOfTwoAndTheLimitsTheSmallestFirst) {
  EXPECT_THAT(SizesToMeasure(3, 20, 40),
              ElementsAre(CostSize{1, 8}, CostSize{2, 8}, CostSize{1, 16}, CostSize{1, 20},
                          CostSize{3, 8}, CostSize{2, 16}, CostSize{2, 20}));
  EXPECT_THAT(SizesToMeasure(6, 0, 100),
              ElementsAre(CostSize{1, 0}, CostSize{2, 0}, CostSize{4, 0}, CostSize{6, 0}));
  EXPECT_THAT(SizesToMeasure(1, 5, 100), ElementsAre(CostSize{1, 5}));
}

}  // namespace
}  // namespace chairlift
