// `chairlift doctor` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

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

}  // namespace
}  // namespace chairlift
