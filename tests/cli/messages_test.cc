// Messages for common mistakes: what is wrong, and what would work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_fixture.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MessagesTest : public CommandFixture {
 protected:
  const std::string model_ = File("doubling.onnx", testing::DoublingModel().Bytes());
};

TEST_F(MessagesTest, FilesThatAreNoOnnxModelsAreSaidToBeWhatTheyAre) {
  for (const auto& [bytes, says] : std::vector<std::pair<std::string, std::string>>{
           {std::string("PK\x03\x04", 4) + "m/data.pkl", "a PyTorch checkpoint; export the model"},
           {"GGUF....", "a GGUF file of llama.cpp"},
           {"\x89PNG\r\n", "a PNG image"},
           {"<!DOCTYPE html><html>", "an HTML page; its download failed"},
           {"some text", "text that begins 'some text'"},
           {"\x08\x08\x3a\x40 cut", "truncated: the file ends after 8 bytes"},
           {"\x08\x01\xff\xff\xff\xff", "malformed or of another format"},
           {"", "the file is empty"}}) {
    EXPECT_THAT(Refusal({"inspect", File("other.onnx", bytes)}, 1), HasSubstr(says));
  }
}

TEST_F(MessagesTest, FlagsOfOtherServersNameThatOfThisOne) {
  for (const auto& [flag, says] : std::vector<std::pair<std::string, std::string>>{
           {"-p", "use --http-port"},
           {"--host", "use --address"},
           {"--grpc-port", "HTTP only, not gRPC"},
           {"--max-batch-size", "use --set max_batch_size=VALUE"},
           {"--gpus", "use --device cuda"},
           {"--model-config", "model.yaml"}}) {
    EXPECT_THAT(Refusal({"serve", model_, flag, "1"}, 2), HasSubstr(says));
  }
}

TEST_F(MessagesTest, NamesOfAHubAndAddressesAreNotDownloaded) {
  EXPECT_THAT(Refusal({"inspect", "sentence-transformers/all-MiniLM-L6-v2"}, 2),
              HasSubstr("hf download sentence-transformers/all-MiniLM-L6-v2"));
  EXPECT_THAT(Refusal({"inspect", "https://example.org/model.onnx"}, 2),
              HasSubstr("download the model"));
}

TEST_F(MessagesTest, AFolderThatCannotBeReadIsSaidToBe) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads any folder";
  const std::filesystem::path locked = folder_ / "locked";
  std::filesystem::create_directory(locked);
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  EXPECT_THAT(Refusal({"inspect", locked.string()}, 1), HasSubstr("Permission denied"));
  std::filesystem::permissions(locked, std::filesystem::perms::owner_all);
}

TEST_F(MessagesTest, AMissingInputIsNamedByItsFlag) {
  EXPECT_THAT(Refusal({"run", model_, "--input", "x=none.npy"}, 1),
              HasSubstr("--input x: cannot open none.npy"));
}

TEST_F(MessagesTest, SettingsOfTritonAndOfPythonModelsAreKnown) {
  File("m/1/model.onnx", testing::DoublingModel().Bytes());
  File("m/model.yaml", "dynamic_batching: {}\n");
  EXPECT_THAT(Refusal({"inspect", (folder_ / "m").string()}, 1),
              HasSubstr("Triton's config.pbtxt; in a model.yaml it is queue_delay_us"));
  EXPECT_THAT(Refusal({"serve", model_, "--set", "wokers=2"}, 2),
              HasSubstr("did you mean 'workers'?"));
  EXPECT_THAT(Refusal({"serve", model_, "--set", "workers=2"}, 2),
              HasSubstr("applies only to Python models"));
}

TEST_F(MessagesTest, FlagsThatMakeNoSenseTogetherAreRefused) {
  EXPECT_THAT(Refusal({"serve", model_, "--memory-budget", "1"}, 2), HasSubstr("1MiB or more"));
  EXPECT_THAT(Refusal({"bench", model_, "--policy", "none", "--tune-delay"}, 2),
              HasSubstr("a policy that waits"));
}

// The name of a library is no flag.
TEST_F(MessagesTest, AMissingGpuIsSaidPlainly) {
  const Outcome outcome = Run({"serve", model_, "--device", "cuda", "--http-port", "0",
                               "--metrics-port", "-1", "--exit-timeout-secs", "0"});
  if (outcome.code == 0) GTEST_SKIP() << "there is one";
  EXPECT_THAT(outcome.output, Not(HasSubstr("--libchairlift")));
}

}  // namespace
}  // namespace chairlift
