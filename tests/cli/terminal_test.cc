#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace chairlift {
namespace {

TEST(HumanTest, NumbersHaveThousandsAndAsManyDecimalsAsSayAnything) {
  EXPECT_EQ(HumanNumber(0), "0");
  EXPECT_EQ(HumanNumber(999), "999");
  EXPECT_EQ(HumanNumber(1000), "1,000");
  EXPECT_EQ(HumanNumber(-1234567), "-1,234,567");
  EXPECT_EQ(HumanNumber(12.345), "12.35");
  EXPECT_EQ(HumanNumber(999.96), "1,000.0");
  EXPECT_EQ(HumanNumber(1234.56), "1,234.6");
  EXPECT_EQ(HumanNumber(123456.7), "123,457");
}

TEST(TableTest, ColumnsAreAsWideAsTheyLook) {
  Table table({"time", "name"});
  table.Add({"µs", "a"});
  table.Add({"long", "b"});
  EXPECT_EQ(table.ToString(), "time  name\nµs    a\nlong  b\n");
}

TEST(PrintableTest, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(Printable("\x1b[31mred\x07\n\x7f"), "\\x1b[31mred\\x07\n\\x7f");
  EXPECT_EQ(Printable("µs, 日本 \u009b2J"), "µs, 日本 \\x9b2J");
  EXPECT_EQ(Printable("not UTF-8: \x9b \xc2"), "not UTF-8: \\x9b \\xc2");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(TableTest, CellsStayOnTheirLine) {
  Table table({"name"});
  table.Add({"a\nb\x1b"});
  EXPECT_EQ(table.ToString(), "name\na\\x0ab\\x1b\n");
}

TEST(HumanTest, OneIsNoPlural) {
  EXPECT_EQ(Counted(1, "model"), "1 model");
  EXPECT_EQ(Counted(0, "model"), "0 models");
  EXPECT_EQ(Counted(1200, "request"), "1,200 requests");
}

}  // namespace
}  // namespace chairlift
