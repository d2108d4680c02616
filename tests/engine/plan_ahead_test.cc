#include "engine/programs/plan_ahead.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/status.h"

namespace chairlift {
namespace {

using Made = std::vector<std::pair<int, int>>;  // rows, width

class PlanAheadTest : public ::testing::Test {
 protected:
  // Each plan packs `bytes` of weights more.
  static BatchPlanner Planner(int max_rows, Made& made, size_t bytes = 0) {
    return {.max_rows = max_rows,
            .plan =
                [&made](int rows, int width) {
                  made.emplace_back(rows, width);
                  return absl::OkStatus();
                },
            .weight_bytes = [&made, bytes] { return 100 + bytes * made.size(); }};
  }

  // Returns once nothing is to be done any more.
  void Wait() {
    for (int idle = 0; idle < 50; ++idle) {
      std::promise<void> done;
      ASSERT_TRUE(background_.Run([&done] { done.set_value(); }));
      done.get_future().wait();
    }
  }

  Background background_{8};
  const LoadOptions load_{.workers = 2, .background = &background_, .autotune = true};
  const std::shared_ptr<const int> owner_ = std::make_shared<int>(0);
};

TEST_F(PlanAheadTest, SizesGrowByHalvesAndThirdsUpToTheMost) {
  Made made;
  LoadOptions one = load_;
  one.workers = 1;
  PlanBatchesAhead({Planner(7, made)}, owner_, one);
  Wait();
  EXPECT_EQ(made, (Made{{2, 1}, {3, 1}, {4, 1}, {6, 1}, {7, 1}}));
}

TEST_F(PlanAheadTest, EachIsMadeForAllWorkersAndForOne) {
  Made made;
  PlanBatchesAhead({Planner(3, made)}, owner_, load_);
  Wait();
  EXPECT_EQ(made, (Made{{2, 2}, {2, 1}, {3, 2}, {3, 1}}));
}

TEST_F(PlanAheadTest, TheSmallestOfAllComeFirst) {
  Made made;
  LoadOptions one = load_;
  one.workers = 1;
  PlanBatchesAhead({Planner(4, made), Planner(2, made), Planner(1, made)}, owner_, one);
  Wait();
  EXPECT_EQ(made, (Made{{2, 1}, {2, 1}, {3, 1}, {4, 1}}));
}

TEST_F(PlanAheadTest, EndsOncePackedWeightsTakeTooMuch) {
  Made made;
  PlanBatchesAhead({Planner(64, made, 60)}, owner_, load_);
  Wait();
  // 100, 220 and then 340 bytes, of 300.
  EXPECT_EQ(made, (Made{{2, 2}, {2, 1}, {3, 2}, {3, 1}}));
}

TEST_F(PlanAheadTest, NothingIsMadeOnceTheOwnerIsGone) {
  Made made;
  auto owner = std::make_shared<int>(0);
  BatchPlanner planner = Planner(64, made);
  planner.plan = [&](int rows, int width) {
    made.emplace_back(rows, width);
    if (rows == 3) owner.reset();
    return absl::OkStatus();
  };
  PlanBatchesAhead({planner}, owner, load_);
  Wait();
  EXPECT_EQ(made, (Made{{2, 2}, {2, 1}, {3, 2}, {3, 1}}));
}

TEST_F(PlanAheadTest, NothingIsMadeWhereTheLoadMayTakeNoTime) {
  Made made;
  LoadOptions quick = load_;
  quick.autotune = false;
  PlanBatchesAhead({Planner(64, made)}, owner_, quick);
  Wait();
  EXPECT_TRUE(made.empty());
}

TEST_F(PlanAheadTest, OneRowIsPlannedForOneWorkerAndForAll) {
  Made made;
  ASSERT_TRUE(PlanOneRow(Planner(4, made), 2).ok());
  EXPECT_EQ(made, (Made{{1, 1}, {1, 2}}));
}

}  // namespace
}  // namespace chairlift
