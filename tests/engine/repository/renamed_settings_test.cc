// Old names of settings: each still works in a model.yaml and a config.pbtxt, and warns.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <string>

#include "base/renamed.h"
#include "engine/repository/model_folder.h"
#include "engine/test_models.h"
#include "support/captured_log.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Example {
  std::string value;
  std::function<bool(const FolderConfig&)> read;  // whether it took the value
};

const std::map<std::string, Example>& Examples() {
  static const std::map<std::string, Example> kExamples = {
      {"kv_cache_bytes", {"4096", [](const auto& f) { return f.config.kv_cache_bytes == 4096; }}},
      {"separate_hooks",
       {"[preprocess]",
        [](const auto& f) {
          return f.function && f.function->separate_hooks == std::vector<std::string>{"preprocess"};
        }}},
      {"max_folded_embedding_bytes",
       {"77", [](const auto& f) { return f.config.max_folded_embedding_bytes == 77; }}},
      {"tensor_names",
       {"{ids: input_ids}",
        [](const auto& f) { return f.config.tensor_names.at("ids") == "input_ids"; }}},
      {"max_sequence_idle_us",
       {"5", [](const auto& f) { return f.config.max_sequence_idle_us == 5; }}},
      {"prefix_caching", {"false", [](const auto& f) { return !f.config.prefix_caching; }}},
      {"time_slice_us", {"9", [](const auto& f) { return f.config.time_slice_us == 9; }}},
      {"join_window_us", {"8", [](const auto& f) { return f.config.join_window_us == 8; }}},
      {"padding_mask", {"mask", [](const auto& f) { return f.config.padding_mask == "mask"; }}},
  };
  return kExamples;
}

TEST(RenamedSettingsTest, EachOldNameWorksInModelYamlAndWarns) {
  for (const Renamed& renamed : RenamedSettings()) {
    const Example& example = Examples().at(renamed.to);
    const bool of_python = std::string(renamed.to) == "separate_hooks";
    testing::TempFolder folder;
    testing::WriteFile(folder / "model.yaml",
                       std::string(of_python ? "python: my.py:predict\n" : "") + renamed.from +
                           ": " + example.value + "\n");
    const CapturedLog log;
    const StatusOr<FolderConfig> read = ReadModelFolder(folder / "");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(example.read(*read)) << renamed.from;
    EXPECT_THAT(log.Lines(), ElementsAre(AllOf(HasSubstr("model.yaml"), HasSubstr(renamed.from),
                                               HasSubstr(renamed.to))));
  }
}

TEST(RenamedSettingsTest, AnOldNameBesideTheNewOneIsGivenTwice) {
  testing::TempFolder folder;
  testing::WriteFile(folder / "model.yaml", "cache_bytes: 1\nkv_cache_bytes: 2\n");
  const CapturedLog log;
  EXPECT_THAT(std::string(ReadModelFolder(folder / "").status().message()),
              HasSubstr("kv_cache_bytes"));
}

TEST(RenamedSettingsTest, AnOldNameWorksInConfigPbtxtAndWarns) {
  testing::TempFolder folder;
  testing::WriteFile(folder / "config.pbtxt",
                     "parameters { key: \"step_slice_us\" value { string_value: \"9\" } }");
  const CapturedLog log;
  const StatusOr<FolderConfig> read = ReadModelFolder(folder / "");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->config.time_slice_us, 9);
  EXPECT_THAT(log.Lines(), ElementsAre(HasSubstr("time_slice_us")));
}

TEST(RenamedSettingsTest, AnOldPolicyWorksInModelYamlAndWarns) {
  for (const Renamed& renamed : RenamedPolicies()) {
    testing::TempFolder folder;
    testing::WriteFile(folder / "model.yaml", std::string("policy: ") + renamed.from + "\n");
    const CapturedLog log;
    const StatusOr<FolderConfig> read = ReadModelFolder(folder / "");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->config.policy, renamed.to);
    EXPECT_THAT(log.Lines(), ElementsAre(AllOf(HasSubstr(renamed.from), HasSubstr(renamed.to))));
  }
}

// A program that embeds the engine gives no file.
TEST(RenamedSettingsTest, AnOldPolicyWorksInTheConfigOfAProgramAndWarns) {
  testing::TempFolder folder;
  const std::string model = testing::WriteFile(folder / "m.onnx", testing::DoublingModel().Bytes());
  const auto engine = Engine::Create({.workers = 1});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const CapturedLog log;
  const Status loaded = (*engine)->LoadModel("m", model, {.policy = "tokens"});
  EXPECT_THAT(std::string(loaded.message()), HasSubstr("policy 'packed' cannot serve this model"));
  EXPECT_THAT(log.Lines(), ElementsAre(HasSubstr("`tokens` is now `packed`")));
}

}  // namespace
}  // namespace chairlift
