// Operators that make or read strings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chairlift/text.h"
#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using testing::Attrs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OperatorCall;
using testing::RunOperator;
using Words = std::vector<std::string>;

Tensor Texts(const Shape& shape, const Words& texts) { return TextTensor(shape, texts); }
Words WordsOf(const Tensor& t) { return {TextsOf(t).begin(), TextsOf(t).end()}; }

std::vector<Tensor> Results(const OperatorCall& call) {
  auto got = RunOperator(call);
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? *std::move(got) : std::vector<Tensor>(2);
}

TEST(StringNormalizerTest, LettersOfAllScriptsChangeCase) {
  const Tensor x = Texts({2, 2}, {"Straße ÄÖ", "ΑΒΓ", "ПРИВЕТ",
                                  "\xff"
                                  "A"});
  EXPECT_THAT(
      WordsOf(Results(
          {"StringNormalizer", Attrs({{"case_change_action", std::string("LOWER")}}), {x}})[0]),
      ElementsAre("straße äö", "αβγ", "привет",
                  "\xff"
                  "a"));
  EXPECT_THAT(WordsOf(Results({"StringNormalizer",
                               Attrs({{"case_change_action", std::string("UPPER")}}),
                               {Texts({1}, {"déjà 1"})}})[0]),
              ElementsAre("DÉJÀ 1"));
}

TEST(StringNormalizerTest, StopWordsAreRemovedBeforeCaseChanges) {
  const auto run = [](int64_t sensitive, const Words& words, const Words& stopwords) {
    const Tensor x = Texts({1, static_cast<int64_t>(words.size())}, words);
    return Results({"StringNormalizer",
                    Attrs({{"case_change_action", std::string("UPPER")},
                           {"is_case_sensitive", sensitive},
                           {"stopwords", stopwords}}),
                    {x}})[0];
  };
  EXPECT_THAT(WordsOf(run(1, {"The", "the", "cat"}, {"the"})), ElementsAre("THE", "CAT"));
  EXPECT_THAT(WordsOf(run(0, {"The", "the", "cat"}, {"THE"})), ElementsAre("CAT"));
  const Tensor nothing = run(0, {"a", "A"}, {"a"});
  EXPECT_EQ(nothing.shape(), (Shape{1, 1}));
  EXPECT_THAT(WordsOf(nothing), ElementsAre(""));
}

TEST(StringNormalizerTest, FormsWithoutAMeaningAreRefused) {
  const auto refused = [](const Attributes& attributes, const Shape& shape) {
    return Message(RunOperator({"StringNormalizer",
                                attributes,
                                {Texts(shape, Words(static_cast<size_t>(shape.NumElements())))}})
                       .status());
  };
  EXPECT_THAT(refused(Attrs({{"stopwords", Words{"a"}}}), {2, 1}), HasSubstr("several rows"));
  EXPECT_THAT(refused(Attrs({{"case_change_action", std::string("TITLE")}}), {1}),
              HasSubstr("'TITLE'"));
  EXPECT_THAT(refused(Attrs({{"locale", std::string("tr_TR")}}), {1}), HasSubstr("tr_TR"));
}

TEST(StringConcatTest, Broadcasts) {
  const auto got =
      Results({"StringConcat", {}, {Texts({2, 1}, {"a", "b"}), Texts({3}, {"", "1", "22"})}});
  EXPECT_EQ(got[0].shape(), (Shape{2, 3}));
  EXPECT_THAT(WordsOf(got[0]), ElementsAre("a", "a1", "a22", "b", "b1", "b22"));
  EXPECT_THAT(
      Message(RunOperator({"StringConcat", {}, {Texts({2}, {"", ""}), Texts({3}, {"", "", ""})}})
                  .status()),
      HasSubstr("do not fit"));
}

TEST(StringSplitTest, SplitsAsPythonDoes) {
  const auto split = [](const Words& words, const char* delimiter, int64_t most) {
    return Results({"StringSplit",
                    Attrs({{"delimiter", std::string(delimiter)}, {"maxsplit", most}}),
                    {Texts({static_cast<int64_t>(words.size())}, words)},
                    2});
  };
  const auto commas = split({"a,,b", "", "c"}, ",", -1);
  EXPECT_EQ(commas[0].shape(), (Shape{3, 3}));
  EXPECT_THAT(WordsOf(commas[0]), ElementsAre("a", "", "b", "", "", "", "c", "", ""));
  EXPECT_THAT(commas[1].values<int64_t>(), ElementsAre(3, 0, 1));
  const auto blanks = split({"  a \t b ", "x"}, "", -1);
  EXPECT_THAT(WordsOf(blanks[0]), ElementsAre("a", "b", "x", ""));
  const auto few = split({"a-b-c"}, "-", 1);
  EXPECT_THAT(WordsOf(few[0]), ElementsAre("a", "b-c"));
  const auto rest = split({" a  b c "}, "", 1);
  EXPECT_THAT(WordsOf(rest[0]), ElementsAre("a", "b c"));
}

TEST(StringCastTest, TextThatIsNoNumberIsAnError) {
  const auto read = [](const char* text, int64_t to) {
    return RunOperator(
        {"NumbersOfText", Attrs({{"to", to}}), {Texts({1}, {text})}, 1, "chairlift"});
  };
  EXPECT_EQ((*read("-7", 7))[0].data<int64_t>()[0], -7);
  for (const char* text : {"", "1.5x", "7 8", "0x10"}) {
    EXPECT_THAT(Message(read(text, 1).status()), HasSubstr("is not a number of type float32"));
  }
  EXPECT_THAT(Message(read("300", 3).status()), HasSubstr("int8"));
}

TEST(TfIdfVectorizerTextTest, CountsNgramsOfStrings) {
  const auto got = Results({"TfIdfVectorizer",
                            Attrs({{"mode", std::string("TF")},
                                   {"min_gram_length", int64_t{1}},
                                   {"max_gram_length", int64_t{2}},
                                   {"max_skip_count", int64_t{0}},
                                   {"ngram_counts", std::vector<int64_t>{0, 2}},
                                   {"ngram_indexes", std::vector<int64_t>{0, 1, 2}},
                                   {"pool_strings", Words{"a", "b", "a", "b"}}}),
                            {Texts({2, 4}, {"a", "b", "x", "a", "a", "b", "a", "b"})}});
  EXPECT_EQ(got[0].shape(), (Shape{2, 3}));
  EXPECT_THAT(got[0].values<float>(), ElementsAre(2, 1, 1, 2, 2, 2));
}

}  // namespace
}  // namespace chairlift
