// The order in which clients' tasks get their turns.
#include "server/http/byte_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace chairlift::http {
namespace {

using ::testing::ElementsAre;

constexpr size_t kMiB = 1 << 20;

std::vector<std::string> TakeAll(ByteTurns<std::string>& turns) {
  std::vector<std::string> taken;
  while (!turns.empty()) taken.push_back(turns.Take());
  return taken;
}

TEST(ByteTurnsTest, EqualTasksOfOneClientKeepTheirOrder) {
  ByteTurns<std::string> turns;
  for (const char* name : {"a", "b", "c"}) turns.Add(1, kMiB, name);
  EXPECT_EQ(turns.size(), 3u);
  EXPECT_THAT(TakeAll(turns), ElementsAre("a", "b", "c"));
}

TEST(ByteTurnsTest, ClientsGetEqualBytesHoweverManyTasksTheyHave) {
  ByteTurns<std::string> turns;
  for (int i = 0; i < 4; ++i) turns.Add(1, 2 * kMiB, "large");
  for (int i = 0; i < 6; ++i) turns.Add(2, kMiB, "small");
  EXPECT_THAT(TakeAll(turns), ElementsAre("large", "small", "small", "large", "small", "small",
                                          "large", "small", "small", "large"));
}

TEST(ByteTurnsTest, AClientThatWasAwayNeitherOwesNorSaves) {
  ByteTurns<std::string> turns;
  for (int i = 0; i < 100; ++i) turns.Add(1, kMiB, "first");
  for (int i = 0; i < 50; ++i) EXPECT_EQ(turns.Take(), "first");
  for (int i = 0; i < 3; ++i) turns.Add(2, kMiB, "second");
  std::vector<std::string> next;
  next.reserve(6);
  for (int i = 0; i < 6; ++i) next.push_back(turns.Take());
  EXPECT_EQ(std::count(next.begin(), next.end(), "second"), 3);
  EXPECT_EQ(turns.Take(), "first");
}

TEST(ByteTurnsTest, ASmallTaskPassesLargeOnesOfItsClientButNotForever) {
  ByteTurns<std::string> turns;
  for (int i = 0; i < 3; ++i) turns.Add(1, 10 * kMiB, "large");
  turns.Add(1, kMiB, "small");
  EXPECT_EQ(turns.Take(), "small");
  EXPECT_EQ(turns.Take(), "large");
  // New small tasks all the time do not keep a large one waiting forever.
  int before = 0;
  for (turns.Add(1, kMiB, "small"); turns.Take() == "small"; turns.Add(1, kMiB, "small")) {
    ASSERT_LT(++before, 40);
  }
  EXPECT_GT(before, 5);
}

}  // namespace
}  // namespace chairlift::http
