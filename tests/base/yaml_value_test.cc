#include "base/yaml_value.h"

#include <gmock/gmock.h>

namespace chairlift {
namespace {

using ::testing::HasSubstr;

YamlValue Parsed(const std::string& text) {
  StatusOr<YamlValue> value = YamlValue::Parse(text);
  EXPECT_TRUE(value.ok()) << value.status();
  return *std::move(value);
}

TEST(YamlValueTest, ReadsTypedValuesByPath) {
  const YamlValue root = Parsed("a: {n: 3, word: x}\nb: [1, 2]\n");
  root.CheckKeys({"a", "b"});
  EXPECT_EQ(root.At("a").At("n").Number({.least = 0, .most = 3}), 3);
  EXPECT_EQ(root.At("a").NameOr("word", "y"), "x");
  EXPECT_EQ(root.At("a").NameOr("other", "y"), "y");
  EXPECT_EQ(root.At("b").List("a list").size(), 2u);
  EXPECT_TRUE(root.status().ok()) << root.status();
}

TEST(YamlValueTest, TheFirstErrorStaysAndWhatFollowsIsEmpty) {
  const YamlValue root = Parsed("a: [x]\nb: y\n");
  EXPECT_EQ(root.At("a").Name(), "");
  EXPECT_EQ(root.At("b").Number({.unit = "rows", .least = 1}), 1);
  EXPECT_TRUE(root.At("b").List("a list").empty());
  EXPECT_EQ(root.status().message(), "line 1: a must be a name");
}

TEST(YamlValueTest, KeysAreKnownAndGivenOnce) {
  const YamlValue unknown = Parsed("a:\n  workers: 1\n  wrokers: 2\n");
  unknown.At("a").CheckKeys({"workers"});
  EXPECT_EQ(unknown.status().message(),
            "line 3: there is no setting 'wrokers' in a; did you mean 'workers'? (there are: "
            "'workers')");
  const YamlValue twice = Parsed("a: 1\na: 2\n");
  twice.CheckKeys({"a"});
  EXPECT_EQ(twice.status().message(), "line 2: a is given twice");
  const YamlValue missing = Parsed("a: {}");
  (void)missing.At("a").At("b");
  EXPECT_EQ(missing.status().message(), "a.b is missing");
}

TEST(YamlValueTest, RangesSayWhatWouldBeRight) {
  EXPECT_EQ((NumberRange{"rows", 0, 64, "any"}).ToString(), "a number of rows, 0 (any) to 64");
  EXPECT_EQ((NumberRange{"bytes", 1}).ToString(), "a number of bytes, at least 1");
  EXPECT_EQ(NumberRange{}.ToString(), "a whole number");
  for (const char* text :
       {"a: 65", "a: 1.5", "a: x", "a: 0x10", "a: 10 rows", "a: ''", "a: 99999999999999999999"}) {
    const YamlValue root = Parsed(text);
    root.At("a").Number({"rows", 0, 64});
    EXPECT_THAT(std::string(root.status().message()),
                HasSubstr("it must be a number of rows, 0 to 64"));
  }
}

TEST(YamlValueTest, NumbersAreDecimal) {
  EXPECT_EQ(Parsed("a: 010").At("a").Number({}), 10);
  EXPECT_EQ(Parsed("a: -7").At("a").Number({}), -7);
  EXPECT_EQ(Parsed("a: 9223372036854775807").At("a").Number({}), INT64_MAX);
  EXPECT_FALSE(Parsed("a: [1]").At("a").IsNumber());
}

TEST(YamlValueTest, WhatIsNoYamlOrTooLongIsRefused) {
  EXPECT_THAT(std::string(YamlValue::Parse("a: [b").status().message()), HasSubstr("not YAML"));
  EXPECT_THAT(std::string(YamlValue::Parse(std::string(2 << 20, ' ')).status().message()),
              HasSubstr("bytes"));
  EXPECT_THAT(std::string(YamlValue::Parse("a: 1\n---\na: 2\n").status().message()),
              HasSubstr("several YAML documents"));
  // A file that YAML::LoadAll() reads without end.
  for (const char* text : {",: [{output: y}]\nes: 2\n", ",", "a: 1\n...\n,"}) {
    EXPECT_FALSE(YamlValue::Parse(text).ok()) << text;
  }
}

TEST(YamlValueTest, ErrorsAreShorterThanTheNamesInThem) {
  const YamlValue root = Parsed(std::string(1000, 'a') + ": 1");
  root.CheckKeys({"workers"});
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("aaa...'"));
  EXPECT_LT(root.status().message().size(), 300u);
}

}  // namespace
}  // namespace chairlift
