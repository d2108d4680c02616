#include "ops/own_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<int> TakeAll(int parts, const std::vector<int>& workers) {
  OwnParts own(parts);
  std::vector<int> taken;
  taken.reserve(workers.size());
  for (const int worker : workers) taken.push_back(own.Take(worker));
  return taken;
}

TEST(OwnPartsTest, EachWorkerHasItsOwnInWhateverOrderTheyCome) {
  EXPECT_THAT(TakeAll(3, {0, 1, 2}), ElementsAre(0, 1, 2));
  EXPECT_THAT(TakeAll(3, {2, 0, 1}), ElementsAre(2, 0, 1));
}

TEST(OwnPartsTest, WhoComesAgainTakesWhatIsLeft) {
  EXPECT_THAT(TakeAll(2, {1, 1}), ElementsAre(1, 0));
  EXPECT_THAT(TakeAll(4, {2, 2, 0, 2}), ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(TakeAll(1, {7}), ElementsAre(0));
  EXPECT_THAT(TakeAll(2, {5, 4}), ElementsAre(1, 0));
}

TEST(OwnPartsTest, NobodyTakesWhatAnotherHas) {
  constexpr int kParts = 8;
  for (int round = 0; round < 50; ++round) {
    OwnParts own(kParts);
    std::vector<int> taken(kParts);
    std::vector<std::thread> workers;
    for (int worker = 0; worker < 2; ++worker) {
      workers.emplace_back([&, worker] {
        for (int i = worker; i < kParts; i += 2) taken[static_cast<size_t>(i)] = own.Take(worker);
      });
    }
    for (std::thread& worker : workers) worker.join();
    EXPECT_THAT(taken, UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
}

}  // namespace
}  // namespace chairlift
