// Runs `chairlift` with a folder of its own.
#ifndef CHAIRLIFT_TESTS_CLI_COMMAND_FIXTURE_H_
#define CHAIRLIFT_TESTS_CLI_COMMAND_FIXTURE_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/process.h"
#include "engine/test_models.h"

namespace chairlift {

struct Outcome {
  int code;
  std::string output;
};

class CommandFixture : public ::testing::Test {
 protected:
  Outcome Run(const std::vector<std::string>& arguments,
              Process::Output output = Process::Output::kPipe) {
    Process process(arguments, {"XDG_CACHE_HOME=" + (folder_ / "cache").string()}, output);
    const int code = process.Wait();
    return {code, process.output()};
  }
  // The message of a program that ended with `code`.
  std::string Refusal(const std::vector<std::string>& arguments, int code) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.output;
    return outcome.output;
  }
  std::string File(const std::string& name, const std::string& bytes) {
    return testing::WriteFile(folder_ / name, bytes);
  }

  testing::TempFolder folder_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_CLI_COMMAND_FIXTURE_H_
