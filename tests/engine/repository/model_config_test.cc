// model.yaml: what it may say, and how a model is served where it says nothing.
#include "engine/repository/model_config.h"

#include <gmock/gmock.h>

#include "base/status.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<ModelConfig> Parse(const std::string& yaml) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const YamlValue settings, YamlValue::Parse(yaml));
  return ReadModelConfig(settings);
}

std::string Refusal(const std::string& yaml) {
  const Status status = Parse(yaml).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << yaml;
  return std::string(status.message());
}

TEST(ModelConfigTest, ReadsEverySetting) {
  const StatusOr<ModelConfig> config = Parse(R"(
policy: window
max_batch_size: 16
queue_delay_us: 500
preferred_batch_sizes: [4, 8]
max_queue_size: 10
max_queue_wait_us: 500000
default_timeout_us: 250000
disabled_passes: [fuse_conv]
batch_dim: 0
)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->batch_dim, 0);
  EXPECT_EQ(config->policy, "window");
  EXPECT_EQ(config->max_batch_size, 16);
  EXPECT_EQ(config->queue_delay_us, 500);
  EXPECT_THAT(config->preferred_batch_sizes, ElementsAre(4, 8));
  EXPECT_EQ(config->max_queue_size, 10);
  EXPECT_EQ(config->max_queue_wait_us, 500000);
  EXPECT_EQ(config->default_timeout_us, 250000);
  EXPECT_THAT(config->disabled_passes, ElementsAre("fuse_conv"));
}

TEST(ModelConfigTest, StagesAreANumberOrCutsByName) {
  const StatusOr<ModelConfig> counted = Parse("policy: staged\nstages: 6\nbuffer_pairs: 3\n");
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(counted->stages, 6);
  EXPECT_EQ(counted->buffer_pairs, 3);
  const StatusOr<ModelConfig> named = Parse("stages: [pool, relu_3]\n");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->stages, 0);
  EXPECT_THAT(named->stages_after, ElementsAre("pool", "relu_3"));
  EXPECT_THAT(Refusal("stages: 1\n"), HasSubstr("stages"));
  EXPECT_THAT(Refusal("stages: 65\n"), HasSubstr("stages"));
  EXPECT_THAT(Refusal("stages: []\n"), HasSubstr("stages"));
  EXPECT_THAT(Refusal("buffer_pairs: 0\n"), HasSubstr("buffer_pairs"));
}

TEST(ModelConfigTest, ExitsAndStagePluginsAreRead) {
  const StatusOr<ModelConfig> config = Parse(
      "join_window_us: 500\n"
      "stage_plugin: {library: libmine.so, options: {rows: \"8\"}}\n"
      "exits:\n"
      "  - {output: early, at_least: 0.9, instead: {scores: early}}\n"
      "  - {output: later, skip_to: b, instead: {b: a}}\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->join_window_us, 500);
  EXPECT_EQ(config->stage_plugin.library, "libmine.so");
  EXPECT_EQ(config->stage_plugin.options.at("rows"), "8");
  ASSERT_EQ(config->exits.size(), 2u);
  EXPECT_EQ(config->exits[0].output, "early");
  EXPECT_EQ(config->exits[0].at_least, 0.9);
  EXPECT_EQ(config->exits[0].instead.at("scores"), "early");
  EXPECT_EQ(config->exits[1].at_least, std::nullopt);
  EXPECT_EQ(config->exits[1].skip_to, "b");
  EXPECT_THAT(Refusal("exits: []\n"), HasSubstr("exits must be a list of exits"));
  EXPECT_THAT(Refusal("exits: [{at_least: 1}]\n"), HasSubstr("output"));
  EXPECT_THAT(Refusal("exits: [{output: a, at_most: 1}]\n"), HasSubstr("at_most"));
  for (const char* wrong : {"much", "nan", "inf", "[1]", "1 2"}) {
    EXPECT_THAT(Refusal(fmt::format("exits: [{{output: a, at_least: {}}}]\n", wrong)),
                HasSubstr("a finite number"));
  }
  EXPECT_THAT(Refusal("stage_plugin: libmine.so\n"), HasSubstr("stage_plugin"));
}

TEST(ModelConfigTest, AnEmptyFileSetsNothing) {
  EXPECT_TRUE(Parse("").ok());
  EXPECT_TRUE(Parse("# nothing\n").ok());
}

TEST(ModelConfigTest, UnknownSettingsAreRefusedWithTheKnownOnes) {
  EXPECT_THAT(Refusal("max_batch: 4"),
              HasSubstr("no setting 'max_batch'; did you mean 'max_batch_size'?"));
  EXPECT_THAT(Refusal("rows: 4"), AllOf(HasSubstr("no setting 'rows'"), HasSubstr("max_batch_size"),
                                        HasSubstr(" more)")));
}

TEST(ModelConfigTest, WrongValuesAreRefusedByName) {
  EXPECT_THAT(Refusal("max_batch_size: many"),
              HasSubstr("max_batch_size is 'many'; it must be a number of rows, 0 (chosen from the "
                        "model) to 65536"));
  EXPECT_THAT(Refusal("max_batch_size: [1]"), HasSubstr("max_batch_size must be a number"));
  EXPECT_THAT(Refusal("max_batch_size: 99999999999"), HasSubstr("max_batch_size is '99999999999'"));
  EXPECT_THAT(Refusal("preferred_batch_sizes: 4"),
              HasSubstr("preferred_batch_sizes is '4'; it must be a list"));
  EXPECT_THAT(Refusal("preferred_batch_sizes: [4, 0]"),
              HasSubstr("preferred_batch_sizes[1] is '0'; it must be a number of rows, 1 to"));
  EXPECT_THAT(Refusal("max_folded_embedding_bytes: 64MiB"),
              HasSubstr("it must be a number of bytes, at least 0 (never fold)"));
  EXPECT_THAT(Refusal("sequence_state: {h: [c]}"), HasSubstr("sequence_state.h must be a name"));
  EXPECT_THAT(Refusal("tensor_names: {ids: [c]}"), HasSubstr("tensor_names.ids must be a name"));
  EXPECT_THAT(Refusal("batch_dim: 1"), HasSubstr("batch_dim is '1'; it must be 0"));
  EXPECT_THAT(Refusal("policy: {a: b}"), HasSubstr("policy must be the name"));
  EXPECT_THAT(Refusal("policy: windows"), HasSubstr("'windows'; did you mean 'window'?"));
  EXPECT_THAT(Refusal("disabled_passes: [fuse_conf]"),
              HasSubstr("there is no pass 'fuse_conf'; did you mean 'fuse_conv'?"));
}

TEST(ModelConfigTest, ErrorsNameTheLine) {
  EXPECT_THAT(Refusal("policy: window\nmax_bach_size:\n  4\n"),
              HasSubstr("line 2: there is no setting 'max_bach_size'; did you mean"));
  EXPECT_THAT(Refusal("policy: window\npreferred_batch_sizes:\n  - 4\n  - x\n"),
              HasSubstr("line 4: preferred_batch_sizes[1] is 'x'"));
  EXPECT_THAT(Refusal("\n\npolicy: windows"), HasSubstr("line 3: there is no batching policy"));
}

TEST(ModelConfigTest, PrefixesAreSharedUnlessItSaysFalse) {
  EXPECT_THAT(Refusal("prefix_caching: maybe"),
              HasSubstr("prefix_caching is 'maybe'; it must be true or false"));
  EXPECT_TRUE(ModelConfig().prefix_caching);
}

// Whether it came from a file or from a program.
TEST(ModelConfigTest, NumbersOutOfRangeAreRefused) {
  ModelConfig config;
  EXPECT_TRUE(CheckConfig(config).ok());
  for (const char* name : {"max_batch_size", "max_batch_tokens", "queue_delay_us",
                           "latency_objective_us", "time_slice_us", "max_queue_size",
                           "max_queue_wait_us", "default_timeout_us", "max_folded_embedding_bytes",
                           "max_sequences", "max_sequence_idle_us", "response_cache_bytes"}) {
    EXPECT_THAT(Refusal(fmt::format("{}: -1", name)), HasSubstr(fmt::format("{} is '-1'", name)));
  }
  config.max_queue_wait_us = -1;
  EXPECT_EQ(CheckConfig(config).message(),
            "max_queue_wait_us is -1; it must be a number of microseconds, 0 (not bounded) to "
            "3600000000");
  EXPECT_THAT(std::string(CheckConfig({.disabled_passes = {"none"}}).message()),
              HasSubstr("there is no pass 'none'"));
}

TEST(ModelConfigTest, WhatIsNoMapOfSettingsIsRefused) {
  EXPECT_THAT(Refusal("- a\n- b"), HasSubstr("must be a map"));
  EXPECT_THAT(Refusal("just words"), HasSubstr("must be a map"));
  EXPECT_THAT(Refusal("a: [b"), HasSubstr("not YAML"));
  EXPECT_THAT(Refusal("policy: none\npolicy: window"), HasSubstr("twice"));
  EXPECT_THAT(Refusal("[a]: b"), HasSubstr("no setting"));
  EXPECT_THAT(Refusal(std::string(2 << 20, ' ')), HasSubstr("bytes"));
}

}  // namespace
}  // namespace chairlift
