// Costs by rows and length are measured once, kept, and measured again where what is kept is of no
// use.
#include "engine/costs/measure.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/status.h"
#include "engine/costs/store.h"

namespace chairlift {
namespace {

class LengthCostsTest : public ::testing::Test {
 protected:
  LengthCostsTest() {
    if (const char* cache = std::getenv("XDG_CACHE_HOME")) before_ = cache;
    std::filesystem::remove_all(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~LengthCostsTest() override {
    if (before_) {
      setenv("XDG_CACHE_HOME", before_->c_str(), 1);
    } else {
      unsetenv("XDG_CACHE_HOME");
    }
    std::filesystem::remove_all(folder_);
  }

  CostSamples Find(bool measure = true) {
    measured_.clear();
    return FindLengthCosts(key_, sampling_, measure, [&](int rows, int length) -> TimedRun {
      if (rows == 2) return nullptr;
      measured_.insert({rows, length});
      const bool fails = rows == 4 && length == 16;
      return
          [fails](int, WorkerMemory&) { return fails ? Internal("too large") : absl::OkStatus(); };
    });
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("length_costs_{}", getpid());
  std::optional<std::string> before_;
  const LengthSampling sampling_ = {.max_rows = 4, .max_length = 16};
  const CostTable::Key key_ = LengthCostKey("a model", sampling_);
  std::set<std::pair<int, int>> measured_;
};

TEST_F(LengthCostsTest, AreMeasuredOnceAndKept) {
  EXPECT_TRUE(Find(false).empty());
  EXPECT_TRUE(measured_.empty());
  const CostSamples first = Find();
  EXPECT_EQ(measured_, (std::set<std::pair<int, int>>{{1, 8}, {1, 16}, {4, 8}, {4, 16}}));
  EXPECT_EQ(first.size(), 3u);
  const CostSamples again = Find();
  EXPECT_TRUE(measured_.empty());
  ASSERT_EQ(again.size(), 3u);
  for (const auto& one : first) {
    const auto same = std::find_if(again.begin(), again.end(), [&](const auto& sample) {
      return sample.rows == one.rows && sample.length == one.length && sample.cost == one.cost;
    });
    EXPECT_NE(same, again.end()) << one.rows << " rows of length " << one.length;
  }
}

TEST_F(LengthCostsTest, AreMeasuredAgainWhereTheFileIsDamaged) {
  Find();
  const auto size = std::filesystem::file_size(CostTablePath(key_));
  for (const uintmax_t left : {size - 1, size / 2, uintmax_t{0}}) {
    std::filesystem::resize_file(CostTablePath(key_), left);
    Find();
    EXPECT_EQ(measured_.size(), 4u) << left << " bytes left";
  }
  std::fstream file(CostTablePath(key_));
  file.seekp(static_cast<std::streamoff>(size / 2));
  file.put('#');
  file.close();
  Find();
  EXPECT_EQ(measured_.size(), 4u);
  Find();
  EXPECT_TRUE(measured_.empty());
}

TEST_F(LengthCostsTest, AreMeasuredAgainForAnotherBuildOrMachine) {
  for (const bool build : {true, false}) {
    CostTable::Key other = key_;
    (build ? other.build : other.device) += " of old";
    CostTable stale(other);
    stale.Set(1, 8, std::chrono::microseconds(1));
    ASSERT_TRUE(stale.Save(CostTablePath(key_)).ok());
    Find();
    EXPECT_EQ(measured_.size(), 4u);
  }
}

TEST_F(LengthCostsTest, CostsThatCannotBeAreNotTaken) {
  ASSERT_TRUE(KeepCosts(key_, {{0, 8, std::chrono::microseconds(1)}}).ok());
  Find();
  EXPECT_EQ(measured_.size(), 4u);
}

TEST_F(LengthCostsTest, WhatIsLearntIsKept) {
  ASSERT_TRUE(KeepCosts(key_, {{3, 7, std::chrono::microseconds(5)}}).ok());
  const CostSamples kept = Find();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].cost, std::chrono::microseconds(5));
}

// A row takes 96 ms: within the time for both looks there are two and four rows, too, by a margin
// of half a second for what else runs.
TEST(MeasureCostsTest, SlowProgramsAreTimedAtSeveralSizes) {
  const auto costs = MeasureCosts(1, {.max_rows = 8, .budget = std::chrono::milliseconds(3840)},
                                  [](size_t, int rows) -> TimedRun {
                                    return [rows](int, WorkerMemory&) {
                                      const TimePoint end = Clock::Steady().Now() +
                                                            rows * std::chrono::milliseconds(96);
                                      while (Clock::Steady().Now() < end) {
                                      }
                                      return absl::OkStatus();
                                    };
                                  });
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_GE(costs[0].size(), 3u);
}

TEST(LengthCostKeyTest, ModelsAndLimitsHaveTheirOwn) {
  const CostTable::Key key = LengthCostKey("a model", {.max_rows = 4, .max_length = 16});
  EXPECT_EQ(key, LengthCostKey("a model", {.max_rows = 4, .max_length = 16}));
  EXPECT_NE(key.model, LengthCostKey("another", {.max_rows = 4, .max_length = 16}).model);
  EXPECT_NE(key.model, LengthCostKey("a model", {.max_rows = 8, .max_length = 16}).model);
  EXPECT_NE(key.model, LengthCostKey("a model", {.max_rows = 4, .max_length = 32}).model);
}

TEST(DescribeForCostsTest, TakesValuesWhoseRankIsNotKnown) {
  Graph graph;
  graph.inputs = {
      graph.AddValue({.name = "x", .dtype = DType::kFloat}),
      graph.AddValue(
          {.name = "y", .dtype = DType::kFloat, .shape = SymbolicShape({Dim(3), Dim::Unknown()})})};
  std::string text;
  DescribeForCosts(graph, text);
  EXPECT_EQ(text, fmt::format(" {0}[?] {0}[3,?,]", DTypeName(DType::kFloat)));
}

}  // namespace
}  // namespace chairlift
