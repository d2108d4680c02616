// Stop strings in texts that come in pieces.
#include "engine/programs/completing/stop_text.h"

#include <gtest/gtest.h>

#include <random>

namespace chairlift {
namespace {

TEST(StopTextTest, HoldsBackWhatMayBecomeAStopString) {
  StopText text({"END", "\n\n"});
  EXPECT_EQ(text.Append("one E"), "one ");
  EXPECT_EQ(text.Append("N"), "");
  EXPECT_EQ(text.Append("ough\n"), "ENough");
  EXPECT_FALSE(text.stopped());
  EXPECT_EQ(text.Append("E"), "\n");
  EXPECT_EQ(text.Append("NDless"), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.Append("more"), "");
  EXPECT_EQ(text.Rest(), "");
}

TEST(StopTextTest, GivesWhatItHeldAtTheEnd) {
  StopText text({"stop"});
  EXPECT_EQ(text.Append("a sto"), "a ");
  EXPECT_EQ(text.Rest(), "sto");
  StopText none({});
  EXPECT_EQ(none.Append("all"), "all");
}

// What comes before the stop string that is complete first.
TEST(StopTextTest, DoesNotDependOnThePieces) {
  std::mt19937 random(3);
  const auto letters = [&](size_t size) {
    std::string text;
    while (text.size() < size) text.push_back("abc"[random() % 3]);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    const std::string all = letters(random() % 20);
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = letters(1 + random() % 4);
    std::string wanted = all;
    for (size_t end = 0; end <= all.size() && wanted == all; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (all.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
      }
      if (longest > 0) wanted = all.substr(0, end - longest);
    }
    StopText text(stops);
    std::string got;
    for (size_t at = 0; at < all.size();) {
      const size_t size = 1 + random() % 4;
      got += text.Append(std::string_view(all).substr(at, size));
      EXPECT_TRUE(wanted.starts_with(got)) << all;
      at += size;
    }
    got += text.Rest();
    EXPECT_EQ(got, wanted) << all;
    EXPECT_EQ(text.stopped(), wanted != all);
  }
}

}  // namespace
}  // namespace chairlift
