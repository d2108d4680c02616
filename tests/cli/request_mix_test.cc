// Request mixes and cost tables as read from files, well formed and not.
#include "cli/simulate/request_mix.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class RequestMixTest : public ::testing::Test {
 protected:
  ~RequestMixTest() override { std::filesystem::remove(path_); }

  const std::filesystem::path& File(const std::string& text, const std::string& extension = "") {
    std::filesystem::remove(path_);
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("request_mix_{}{}", getpid(), extension);
    std::ofstream(path_) << text;
    return path_;
  }
  static std::string Error(const Status& status) { return chairlift::Message(status); }

  std::filesystem::path path_;
};

TEST_F(RequestMixTest, DrawsLengthsAsOftenAsTheyOccur) {
  const auto lengths = ReadLengths(File(R"({"histogram": {"2": 3, "5": 1, "9": 7}})"), 5);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  const RequestMix mix = ChainMix(*lengths);
  ASSERT_THAT(mix.graphs, SizeIs(2));
  EXPECT_DOUBLE_EQ(mix.mean_nodes(), 11.0 / 4);
  std::mt19937_64 random(1);
  int twos = 0;
  for (int i = 0; i < 4000; ++i) {
    if (mix.graphs[static_cast<size_t>(mix.Sample(random))].size() == 2) ++twos;
  }
  EXPECT_NEAR(twos, 3000, 120);
}

TEST_F(RequestMixTest, ASequenceIsOneRowOfItsLengthOrItsTokens) {
  const auto lengths = UniformLengths("3-5");
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  const RequestMix padded = EncoderMix(*lengths, false);
  ASSERT_THAT(padded.graphs, SizeIs(3));
  EXPECT_EQ(padded.graphs[1].rows(0), 1);
  EXPECT_EQ(padded.graphs[1].length(), 4);
  const RequestMix packed = EncoderMix(*lengths, true);
  EXPECT_EQ(packed.graphs[1].rows(0), 4);
  EXPECT_EQ(packed.graphs[1].length(), 0);
  for (const char* range : {"", "3", "3-", "-5", "0-5", "5-3", "3-5-7", "3-9999999"}) {
    EXPECT_FALSE(UniformLengths(range).ok()) << range;
  }
}

TEST_F(RequestMixTest, SomeLeaveAfterAnExit) {
  const RequestMix mix = StagesMix(4, /*whole=*/false, /*exit=*/2, /*leaving=*/25);
  ASSERT_EQ(mix.graphs.size(), 2u);
  EXPECT_EQ(mix.graphs[0].size(), 2);
  EXPECT_EQ(mix.graphs[1].size(), 4);
  EXPECT_EQ(mix.cumulative, (std::vector<uint64_t>{25, 100}));
  EXPECT_EQ(StagesMix(4, /*whole=*/true, 2, 25).graphs.size(), 1u) << "as a whole, nobody leaves";
  EXPECT_EQ(StagesMix(4, /*whole=*/false, 2, 100).graphs[0].size(), 2);
}

TEST_F(RequestMixTest, ADecoderFollowsItsEncoder) {
  const auto mix = Seq2SeqMix(File(R"({"joint": {"2:3": 1, "0:4": 5}})"), 0);
  ASSERT_TRUE(mix.ok()) << mix.status();
  ASSERT_THAT(mix->graphs, SizeIs(1));
  const CellGraph& graph = mix->graphs[0];
  ASSERT_EQ(graph.size(), 5);
  EXPECT_EQ(graph.type(1), 0u);
  EXPECT_EQ(graph.type(2), 1u);
  EXPECT_EQ(graph.run(graph.RunOf(2)).dependencies[0], 1);
}

TEST_F(RequestMixTest, ReadsTrees) {
  const auto mix = TreeMix(File("((..).)\n.\n"));
  ASSERT_TRUE(mix.ok()) << mix.status();
  ASSERT_THAT(mix->graphs, SizeIs(2));
  EXPECT_EQ(mix->graphs[0].size(), 5);
  EXPECT_EQ(mix->graphs[0].type(4), 1u);
  EXPECT_EQ(CompleteTreeMix(4).graphs[0].size(), 31);
}

TEST_F(RequestMixTest, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(Error(ReadLengths(File("[]"), 0).status()), HasSubstr("histogram"));
  EXPECT_THAT(Error(ReadLengths(File(R"({"histogram": {"0": 1}})"), 0).status()), HasSubstr("'0'"));
  EXPECT_THAT(Error(ReadLengths(File(R"({"histogram": {"9999999999": 1}})"), 0).status()),
              HasSubstr("'9999999999'"));
  EXPECT_THAT(Error(ReadLengths(File(R"({"histogram": {"9": 1}})"), 5).status()),
              HasSubstr("no request is left"));
  EXPECT_THAT(Error(Seq2SeqMix(File(R"({"joint": {"9": 1}})"), 0).status()), HasSubstr("'9'"));
  for (const char* tree : {"(", "(.)", "(..", "(..))", "(...)", "x"}) {
    EXPECT_THAT(Error(TreeMix(File(tree)).status()), HasSubstr("line 1")) << tree;
  }
  EXPECT_THAT(Error(TreeMix(File(std::string(100000, '('))).status()), HasSubstr("levels deep"));
  EXPECT_EQ(ReadLengths("/no/such/file", 0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RequestMixTest, ReadsCostsOfTheCellsAskedFor) {
  const auto csv = ReadCosts(File("# a comment\ncell,rows,microseconds\nb,1,10\na,4,2.5\n"), {"a"});
  ASSERT_TRUE(csv.ok()) << csv.status();
  EXPECT_EQ(csv->Cost(0, 4, 0), Duration(2500));
  const auto json = ReadCosts(File(R"({"source": "me", "a": {"1": 3, "2": 4}})", ".json"), {"a"});
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->Cost(0, 2, 0), microseconds(4));
  const auto long_ones = ReadCosts(File("a,1,10,5\na,1,20,7\n"), {"a"});
  ASSERT_TRUE(long_ones.ok()) << long_ones.status();
  EXPECT_EQ(long_ones->Cost(0, 1, 15), microseconds(6));
  EXPECT_THAT(Error(ReadCosts(File("a,1,1\n"), {"a", "b"}).status()), HasSubstr("cell 'b'"));
  for (const char* line :
       {"a,1", "a,x,1", "a,0,1", "a,1,-1", "a,1,nan", "a,1,1x", "a,,", "a,1,-1,1", "a,1,1,1,1"}) {
    EXPECT_FALSE(ReadCosts(File(line), {"a"}).ok()) << line;
  }
  EXPECT_FALSE(ReadCosts(File(R"({"a": {"1": "x"}})", ".json"), {"a"}).ok());
}

}  // namespace
}  // namespace chairlift
