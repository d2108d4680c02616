#include "base/excerpt.h"

#include <gtest/gtest.h>

namespace chairlift {
namespace {

TEST(ExcerptTest, NoCharacterIsCut) {
  const std::string text = "aä€🎈";  // of 1, 2, 3 and 4 bytes
  for (const auto& [most, kept] : {std::pair<size_t, size_t>{0, 0},
                                   {1, 1},
                                   {2, 1},
                                   {3, 3},
                                   {4, 3},
                                   {5, 3},
                                   {6, 6},
                                   {7, 6},
                                   {8, 6},
                                   {9, 6},
                                   {10, 10},
                                   {99, 10}}) {
    EXPECT_EQ(CutText(text, most), text.substr(0, kept)) << most;
  }
  EXPECT_EQ(Shortened(text, 5), "aä...");
  EXPECT_EQ(Shortened(text, 10), text);
}

TEST(ExcerptTest, BytesThatAreNoTextAreCutAnywhere) {
  EXPECT_EQ(CutText(std::string(20, '\x80'), 10), std::string(10, '\x80'));
}

}  // namespace
}  // namespace chairlift
