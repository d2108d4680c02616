// Regular expressions: what matches, where, and which of several matches is taken.
#include "ops/tabular/text_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace chairlift {
namespace {

using ::testing::HasSubstr;

TextPattern Pattern(std::string_view expression) {
  auto pattern = TextPattern::Parse(expression);
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  return pattern.ok() ? *pattern : *TextPattern::Parse("x");
}

// All matches, one after the other, with | around each.
std::string Marked(std::string_view expression, std::string_view text) {
  const TextPattern pattern = Pattern(expression);
  std::string out;
  size_t from = 0;
  while (const auto found = pattern.Find(text, from)) {
    out += text.substr(from, found->first - from);
    out += '|';
    out += text.substr(found->first, found->second - found->first);
    out += '|';
    from = found->second;
    if (found->first == found->second) break;
  }
  return out += text.substr(from);
}

TEST(TextPatternTest, TakesTheFirstMatchAndTheLongestOfThose) {
  EXPECT_EQ(Marked("a|ab", "xab"), "x|ab|");
  EXPECT_EQ(Marked("(a|ab)(c|bcd)+", "abcd"), "|abcd|");
  EXPECT_EQ(Marked("[ab]{2}", "aabba"), "|aa||bb|a");
  EXPECT_EQ(Marked("a{2,3}", "aaaaa"), "|aaa||aa|");
  EXPECT_EQ(Marked("x.*y", "axbyxy."), "a|xbyxy|.");
  EXPECT_EQ(Marked("a.?c|b", "abc"), "|abc|");
}

TEST(TextPatternTest, ClassesAndEscapes) {
  EXPECT_EQ(Marked("[^,;]+", "a,b;;c"), "|a|,|b|;;|c|");
  EXPECT_EQ(Marked("[]a-]+", "b]-ac"), "b|]-a|c");
  EXPECT_EQ(Marked("[\\d\\-x]+", "ab1-x2"), "ab|1-x2|");
  EXPECT_EQ(Marked("\\W+", "ab, c"), "ab|, |c");
  EXPECT_EQ(Marked("\\S+", "\ta b\n"), "\t|a| |b|\n");
  EXPECT_EQ(Marked("\\.\\[\\n", "a.[\n"), "a|.[\n|");
  // \\w is ASCII; characters are those of UTF-8.
  EXPECT_EQ(Marked("\\w+", "d\u00e9j\u00e0"), "|d|\u00e9|j|\u00e0");
  EXPECT_EQ(Marked("[\u00e0-\u00e9]", "d\u00e9j\u00e0"), "d|\u00e9|j|\u00e0|");
  EXPECT_EQ(Marked("d.j", "d\u00e9j"), "|d\u00e9j|");
}

TEST(TextPatternTest, PlacesTakeNoCharacter) {
  EXPECT_EQ(Marked("\\b\\w\\w+\\b", "a bc d_e"), "a |bc| |d_e|");
  EXPECT_EQ(Marked("^a", "aa"), "|a|a");
  EXPECT_EQ(Marked("a$", "aa"), "a|a|");
  EXPECT_TRUE(Pattern("^$").MatchesWhole(""));
  EXPECT_TRUE(Pattern("(\\b|,)*a").MatchesWhole(",,a"));
  EXPECT_TRUE(Pattern("").matches_empty());
  EXPECT_FALSE(Pattern("a?b").matches_empty());
}

TEST(TextPatternTest, TheSyntaxIsThatOfRe2) {
  EXPECT_EQ(Marked("(?i)AB", "xaB"), "x|aB|");
  EXPECT_EQ(Marked("\\x41+", "bAA"), "b|AA|");
  EXPECT_EQ(Marked("[[:alpha:]]+", "1ab2"), "1|ab|2");
  EXPECT_EQ(Marked("\\pL+", "1d\u00e9j2"), "1|d\u00e9j|2");
  EXPECT_EQ(Marked("a+?", "aab"), "|aa|b");  // the longest, as in ONNX Runtime's Tokenizer
  EXPECT_EQ(Marked("(?m)^b", "a\nb"), "a\n|b|");
}

TEST(TextPatternTest, WhatIsNotValidIsRefusedWithTheReason) {
  const auto refused = [](std::string_view expression) {
    const Status status = TextPattern::Parse(expression).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused("a)"), HasSubstr("'a)' is not in RE2's syntax: unexpected )"));
  EXPECT_THAT(refused("*a"), HasSubstr("no argument for repetition operator: *"));
  EXPECT_THAT(refused("a{3,2}"), HasSubstr("{3,2}"));
  EXPECT_THAT(refused("a{1001}"), HasSubstr("{1001}"));
  EXPECT_THAT(refused("(a"), HasSubstr("missing )"));
  EXPECT_THAT(refused("[a"), HasSubstr("missing ]"));
  EXPECT_THAT(refused("[b-a]"), HasSubstr("b-a"));
  EXPECT_THAT(refused("a\\"), HasSubstr("trailing \\"));
  EXPECT_THAT(refused("a(?=b)"), HasSubstr("(?="));  // would take more than linear time
  EXPECT_THAT(refused("(a)\\1"), HasSubstr("\\1"));
  EXPECT_THAT(refused("\xff"), HasSubstr("UTF-8"));
}

// Files may hold anything: neither memory nor stack grows with them.
TEST(TextPatternTest, LargeExpressionsAreRefused) {
  const auto refused = [](std::string_view expression) {
    return std::string(TextPattern::Parse(expression).status().message());
  };
  EXPECT_THAT(refused("(\\pL{50}){20}"), HasSubstr("needs more than 1024 KiB of memory"));
  EXPECT_THAT(refused("((a{100}){100}){100}"), HasSubstr("{100}"));
  const std::string deep = std::string(30'000, '(') + "a" + std::string(30'000, ')');
  EXPECT_TRUE(Pattern(deep).MatchesWhole("a"));
  EXPECT_THAT(refused(std::string(70'000, 'a')), HasSubstr("has 70000 bytes; it may have 65536"));
}

// RE2 cannot be stopped within a match.
TEST(TextPatternTest, TextsAreBoundedByTheWorkOfAMatch) {
  const TextPattern large = Pattern("[ab]{900}c");
  EXPECT_TRUE(large.Admit("").ok());
  EXPECT_TRUE(large.Admit(std::string(1'000'000, 'a')).ok());
  const Status status = large.Admit(std::string(8'000'000, 'a'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a text of 8000000 bytes is too long"));
  EXPECT_TRUE(Pattern("a+").Admit(std::string(100'000'000, 'a')).ok());
}

// Backtracking would take 2ⁿ steps.
TEST(TextPatternTest, TimeIsLinearInTheText) {
  const std::string text(20'000, 'a');
  EXPECT_FALSE(Pattern("(a|aa)*(a|aa)*b").MatchesWhole(text));
  EXPECT_TRUE(Pattern("(a*)*").MatchesWhole(text));
  EXPECT_FALSE(Pattern("a*a*a*a*c").Find(text, 0).has_value());
}

}  // namespace
}  // namespace chairlift
