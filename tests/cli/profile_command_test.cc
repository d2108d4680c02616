// What `chairlift profile` refuses, and what it says of operators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_fixture.h"
#include "engine/test_models.h"
#include "graph/decoders/decoder_models.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class ProfileCommandTest : public CommandFixture {
 protected:
  std::vector<std::string> Operators(const std::string& model) {
    return {"profile", model, "--operators", "--seconds", "0"};
  }

  const std::string doubling_ = File("doubling.onnx", testing::DoublingModel().Bytes());
};

// y = −x, as often as `count`, an input, says; made-up inputs are 0 where they are named as
// segments are.
testing::ModelBuilder LoopModel(const char* count) {
  testing::ModelBuilder m(17);
  m.Input(count, testing::kInt64, {}).Input("x", testing::kFloat, {2}).Output("y", testing::kFloat);
  auto node = m.Node("Loop", {count, "", "x"}, {"y"}).Name("turns");
  testing::GraphProtoBuilder body(node.Body("body"));
  body.Input("i", testing::kInt64, {})
      .Input("c", testing::kBool, {})
      .Input("s", testing::kFloat, {2});
  body.Output("c", testing::kBool).Output("t", testing::kFloat);
  body.Node("Neg", {"s"}, {"t"});
  return m;
}

TEST_F(ProfileCommandTest, FlagsThatHaveNoEffectAreRefused) {
  const std::vector<std::vector<std::string>> others = {
      {"--batch-sizes", "1,2"}, {"--lengths", "8"}, {"--force"}, {"--seconds-per-point", "1"}};
  for (const std::vector<std::string>& other : others) {
    std::vector<std::string> arguments = Operators(doubling_);
    arguments.insert(arguments.end(), other.begin(), other.end());
    EXPECT_THAT(Refusal(arguments, 2), AllOf(HasSubstr(other[0]), HasSubstr("--operators")));
  }
  EXPECT_THAT(Refusal({"profile", doubling_, "--top", "3"}, 2), HasSubstr("--operators"));
}

TEST_F(ProfileCommandTest, NumbersThatAreNoneAndFilesWithoutANameAreRefused) {
  for (const char* number : {"nan", "-nan", "inf", "-1", "1e9", "", "1e999"}) {
    EXPECT_THAT(Refusal({"profile", doubling_, "--operators", "--seconds", number}, 2),
                HasSubstr("--seconds"));
    EXPECT_THAT(Refusal({"bench", doubling_, "--rate", number}, 2), HasSubstr("--rate"));
  }
  EXPECT_THAT(Refusal({"profile", doubling_, "--operators", "--json", ""}, 2),
              HasSubstr("--json: it needs a name"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--trace="}, 2), HasSubstr("--trace needs a value"));
  EXPECT_THAT(Refusal({"inspect", doubling_, "--svg", ""}, 2), HasSubstr("--svg: it needs a name"));
  EXPECT_THAT(Refusal({"run", doubling_, "--output-dir", ""}, 2),
              HasSubstr("--output-dir: it needs a name"));
}

TEST_F(ProfileCommandTest, LoopsWhoseBodiesDidNotRunAreNamed) {
  std::vector<std::string> arguments = Operators(File("idle.onnx", LoopModel("segments").Bytes()));
  const std::string json = (folder_ / "idle.json").string();
  arguments.insert(arguments.end(), {"--json", json});
  const Outcome idle = Run(arguments);
  ASSERT_EQ(idle.code, 0) << idle.output;
  EXPECT_THAT(idle.output, HasSubstr("Loop turns ran its body 0 times"));
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(json))["nodes"][0]["iterations"], 0);
  const Outcome once = Run(Operators(File("once.onnx", LoopModel("mask").Bytes())));
  ASSERT_EQ(once.code, 0) << once.output;
  EXPECT_THAT(once.output, AllOf(HasSubstr("Neg"), Not(HasSubstr("0 times"))));
}

std::string Read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(ProfileCommandTest, CsvHasTheCostsThatSimulateReads) {
  const std::string encoder = CHAIRLIFT_ENCODERS "/minilm_hf5_dynamo_sdpa_18.onnx";
  const std::string csv = (folder_ / "costs.csv").string();
  const std::vector<std::string> quick = {"--batch-sizes", "1,2", "--seconds-per-point", "0",
                                          "--csv",         csv};
  std::vector<std::string> arguments = {"profile", encoder, "--lengths", "4,8"};
  arguments.insert(arguments.end(), quick.begin(), quick.end());
  const Outcome done = Run(arguments);
  ASSERT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("tokens a second; a row is `length` tokens:\n"));
  EXPECT_THAT(Read(csv), MatchesRegex("# minilm[^\n]*, [0-9]+ workers?: microseconds of a batch\n"
                                      "cell,rows,length,microseconds\n"
                                      "# a row is `length` tokens\n"
                                      "sequence,1,4,[0-9.]+\nsequence,2,4,[0-9.]+\n"
                                      "sequence,1,8,[0-9.]+\nsequence,2,8,[0-9.]+\n"));
  const Outcome simulated =
      Run({"simulate", "--application", "encoder", "--costs", csv, "--uniform-lengths", "4-8",
           "--rate", "10", "--requests", "50", "--max-batch-size", "2", "--policy", "length_dp"});
  EXPECT_EQ(simulated.code, 0) << simulated.output;

  arguments = {"profile", doubling_};
  arguments.insert(arguments.end(), quick.begin(), quick.end());
  ASSERT_EQ(Run(arguments).code, 0);
  EXPECT_THAT(Read(csv), AllOf(HasSubstr("\nwhole,1,0,"), Not(HasSubstr("tokens"))));
  const Outcome whole = Run({"simulate", "--application", "stages", "--costs", csv, "--rate", "10",
                             "--requests", "50", "--policy", "none"});
  EXPECT_EQ(whole.code, 0) << whole.output;
}

TEST_F(ProfileCommandTest, ModelsThatGenerateHaveTokensASecond) {
  const std::string csv = (folder_ / "costs.csv").string();
  const Outcome done = Run({"profile", File("decoder.onnx", testing::Gpt2Model()), "--lengths",
                            "4,8", "--seconds-per-point", "0", "--csv", csv});
  ASSERT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output,
              AllOf(HasSubstr("tokens a second; a request is a prompt of `length` tokens and an "
                              "answer of 8 tokens:\n"),
                    ContainsRegex("length +input tokens/s +output tokens/s\n"),
                    ContainsRegex("\n +4 +[0-9,.]+ +[0-9,.]+\n")));
  EXPECT_THAT(Read(csv), AllOf(HasSubstr("\n# a request is a prompt of `length` tokens and an "
                                         "answer of 8 tokens\n"),
                               ContainsRegex("\nsequence,1,4,[0-9.]+\nsequence,1,8,[0-9.]+\n")));
}

TEST_F(ProfileCommandTest, CsvOfOperatorsHasALineForEveryNode) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 4}).Output("y", testing::kFloat);
  m.Node("Erf", {"x"}, {"y"}).Name("first, \"quoted\"\n#node");
  const std::string csv = (folder_ / "nodes.csv").string();
  std::vector<std::string> arguments = Operators(File("named.onnx", m.Bytes()));
  arguments.insert(arguments.end(), {"--csv", csv});
  ASSERT_EQ(Run(arguments).code, 0);
  EXPECT_THAT(
      Read(csv),
      AllOf(HasSubstr("node,cell,operator,implementation,refused,shapes,us,flops,bound_percent\n"),
            HasSubstr("\n\"first, \"\"quoted\"\"\n#node\",,Erf,"),
            HasSubstr(",\"[1,4] -> [1,4]\",")));
  EXPECT_THAT(Refusal({"profile", doubling_, "--csv", "/nowhere/out.csv"}, 1),
              AllOf(HasSubstr("cannot write /nowhere/out.csv"), Not(HasSubstr("a second"))));
  arguments.insert(arguments.end(), {"--json", csv});
  EXPECT_THAT(Refusal(arguments, 2), HasSubstr("--json and --csv would both write"));
}

// No command hands what a terminal obeys from a model's file to it.
TEST_F(ProfileCommandTest, NamesFromFilesArePrintedHarmlessly) {
  const std::string evil = "\x1b]0;owned\x07\x1b[2J\x9b\x7f";
  testing::ModelBuilder m(17);
  m.Input("x" + evil, testing::kFloat, {"batch", 4}).Output("y" + evil, testing::kFloat);
  m.Node("Erf", {"x" + evil}, {"z" + evil}).Name("first" + evil);
  m.Node("Det", {"z" + evil}, {"y" + evil}).Name("second" + evil);
  const std::string refused = File("refused.onnx", m.Bytes());
  testing::ModelBuilder good(17);
  good.Input("x" + evil, testing::kFloat, {"batch", 4}).Output("y" + evil, testing::kFloat);
  good.Node("Erf", {"x" + evil}, {"y" + evil}).Name("first" + evil);
  const std::string model = File("named.onnx", good.Bytes());
  const std::string svg = (folder_ / "cells.svg").string();
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", model, "--passes"},
      {"inspect", model, "--operators"},
      {"inspect", refused},
      {"inspect", model, "--svg", svg},
      Operators(model),
      {"bench", model, "--rate", "100", "--seconds", "0.05", "--warmup-seconds", "0"},
      {"bench", model, "--shape", "z=1x4"},
      {"run", model}};
  for (const std::vector<std::string>& command : commands) {
    const std::string output = Run(command).output;
    EXPECT_THAT(output, HasSubstr("\\x1b]0;owned\\x07")) << command[0] << " " << command[1];
    const auto harmless = [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte == '\n' || (byte >= 0x20 && byte != 0x7F && byte != 0x9B);
    };
    for (const char c : output) ASSERT_TRUE(harmless(c)) << command[0] << ":\n" << output;
  }
}

}  // namespace
}  // namespace chairlift
