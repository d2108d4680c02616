// `chairlift doctor` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_fixture.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DoctorTest : public CommandFixture {};

TEST_F(DoctorTest, SaysWhatTheMachineGives) {
  const Outcome outcome = Run({"doctor"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("chairlift 0."), HasSubstr("cores"), HasSubstr("GFLOP/s"),
                    HasSubstr("port 8000"), HasSubstr("cache")));
}

TEST_F(DoctorTest, JsonHasTheFindingsOfAModel) {
  const std::string model = File("double.onnx", testing::DoublingModel().Bytes());
  const Outcome outcome = Run({"doctor", model, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  const nlohmann::json report = nlohmann::json::parse(outcome.output);
  bool batches = false, timed = false;
  for (const auto& finding : report.at("model")) {
    EXPECT_NE(finding.at("level"), "problem") << finding;
    batches |= finding.at("about") == "batching";
    timed |= finding.at("about") == "throughput";
  }
  EXPECT_TRUE(batches && timed) << report;
}

TEST_F(DoctorTest, OnlyAModelThatRunsOneByOneIsToBeExportedAgain) {
  const std::string decoder = File("decoder.onnx", testing::LlamaModel());
  EXPECT_THAT(Run({"doctor", decoder}).output,
              AllOf(HasSubstr("ok      batching"), HasSubstr("ok      kind         decoder"),
                    Not(HasSubstr("open first dimension"))));
  testing::ModelBuilder fixed(17);
  fixed.Input("x", testing::kFloat, {2, 4}).Input("z", testing::kFloat, {2, 4});
  fixed.Output("y", testing::kFloat, {2, 4}).Node("Add", {"x", "z"}, {"y"});
  EXPECT_THAT(Run({"doctor", File("fixed.onnx", fixed.Bytes())}).output,
              AllOf(HasSubstr("hint    batching"), HasSubstr("info    not cells"),
                    HasSubstr(R"(dynamo=True, dynamic_shapes=({0: "batch"},) * 2))"),
                    HasSubstr("docs/guides/exporting.md")));
}

TEST_F(DoctorTest, TheMemoryOfAModelHasItsWeights) {
  constexpr int kSize = 2048;  // 16 MiB of weights
  testing::ModelBuilder model(17);
  model.Input("x", testing::kFloat, {"batch", kSize}).Output("y");
  model.Tensor("w", onnx::TensorProto::FLOAT, {kSize, kSize})
      ->mutable_float_data()
      ->Resize(kSize * kSize, 0.5F);
  model.Node("MatMul", {"x", "w"}, {"y"});
  const Outcome outcome = Run({"doctor", File("wide.onnx", model.Bytes()), "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const nlohmann::json report = nlohmann::json::parse(outcome.output);
  double mebibytes = 0;
  for (const auto& finding : report.at("model")) {
    const auto said = finding.at("said").get<std::string>();
    if (finding.at("about") == "memory" && said.find(" MiB for weights") != std::string::npos) {
      mebibytes = std::stod(said);
    }
  }
  EXPECT_GE(mebibytes, 16) << report;
}

TEST_F(DoctorTest, PathsThatDoNotWorkAreNotOk) {
  Process process({"doctor"}, {"XDG_CACHE_HOME=/proc/nope", "CHAIRLIFT_PYTHON=/usr/bin/python9"});
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(
      process.output(),
      AllOf(HasSubstr("hint    cache        /proc/nope/chairlift cannot be written"),
            HasSubstr("hint    Python       /usr/bin/python9 (CHAIRLIFT_PYTHON) cannot be run")));
}

TEST_F(DoctorTest, AModelThatCannotBeServedIsAProblem) {
  const std::string broken = File("broken.onnx", "not a model");
  const Outcome outcome = Run({"doctor", broken});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("problem model"));
}

TEST_F(DoctorTest, WhatServeRefusesInspectAndDoctorRefuseInTheSameWords) {
  const std::string start = "max_batch_size: 8 ";
  const std::string good = R"(input { name: "x" data_type: TYPE_FP32 dims: [4] } )";
  struct Case {
    std::string folder, config, error;
  };
  const std::vector<Case> cases = {
      {"another", R"(input { name: "z" data_type: TYPE_FP32 dims: [4] })",
       "the model has no input 'z'"},
      {"type", R"(input { name: "x" data_type: TYPE_INT64 dims: [4] })",
       "input 'x' is int64 there"},
      {"dims", R"(input { name: "x" data_type: TYPE_FP32 dims: [5] })", "input 'x'"},
      {"output", good + R"(output { name: "w" data_type: TYPE_FP32 dims: [4] })",
       "the model has no output 'w'"},
      {".dot", good, "'.dot' cannot be a model's name"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.folder);
    File(c.folder + "/1/model.onnx", testing::DoublingModel().Bytes());
    File(c.folder + "/config.pbtxt", start + c.config);
    const std::string folder = (folder_ / c.folder).string();
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"serve", folder, "--http-port", "0", "--metrics-port", "-1"},
          {"inspect", folder},
          {"doctor", folder}}) {
      EXPECT_THAT(Refusal(command, 1), HasSubstr(c.error)) << command[0];
    }
  }
}

}  // namespace
}  // namespace chairlift
