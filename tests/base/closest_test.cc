#include "base/closest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace chairlift {
namespace {

const std::vector<std::string> kNames = {"serve", "run", "inspect", "profile", "bench", "simulate"};

TEST(ClosestTest, FindsWhatTheFewestChangesMake) {
  EXPECT_EQ(Closest("srve", kNames), "serve");
  EXPECT_EQ(Closest("isnpect", kNames), "inspect");  // two swapped
  EXPECT_EQ(Closest("benches", kNames), "bench");
  EXPECT_EQ(Closest("RUN", kNames), "run");
  EXPECT_EQ(Closest("ran", kNames), "run");
  EXPECT_EQ(Closest("ocr-detecton", std::vector<std::string>{"ocr_orientation", "ocr_detection"}),
            "ocr_detection");
}

TEST(ClosestTest, OfTwoAsCloseTheFirst) {
  EXPECT_EQ(Closest("bat", std::vector<std::string>{"cat", "hat"}), "cat");
}

TEST(ClosestTest, WhatIsNothingLikeAnyIsNone) {
  EXPECT_FALSE(Closest("train", kNames));
  EXPECT_FALSE(Closest("", kNames));
  EXPECT_FALSE(Closest("x", kNames));
  EXPECT_FALSE(Closest("x", std::vector<std::string>{"y", ""}));
  EXPECT_FALSE(Closest("serve", {}));
  EXPECT_FALSE(Closest(std::string(65, 'a'), std::vector<std::string>{std::string(65, 'a')}));
}

TEST(DidYouMeanTest, EndsAMessage) {
  EXPECT_EQ(DidYouMean("serv", kNames), "; did you mean 'serve'?");
  EXPECT_EQ(DidYouMean("train", kNames), "");
  const std::vector<std::string> settings = {"batch_dim", "max_batch_size", "max_batch_tokens"};
  EXPECT_EQ(DidYouMean("max_batch", settings), "; did you mean 'max_batch_size'?");
  EXPECT_EQ(DidYouMean("Max-Batch", settings), "; did you mean 'max_batch_size'?");
  EXPECT_EQ(DidYouMean("max_bat", settings), "");
  EXPECT_EQ(DidYouMean("a", std::vector<std::string>{"a_b"}), "");
}

TEST(KnownNamesTest, EndsAMessage) {
  const std::vector<std::string> two = {"run", "bench"};
  EXPECT_EQ(KnownNames("rum", two), "; did you mean 'run'? (there are: 'run', 'bench')");
  EXPECT_EQ(KnownNames("train", two), " (there are: 'run', 'bench')");
  EXPECT_EQ(KnownNames("train", {}), " (it has none)");
}

}  // namespace
}  // namespace chairlift
