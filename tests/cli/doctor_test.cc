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
