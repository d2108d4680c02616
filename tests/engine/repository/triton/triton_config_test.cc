// config.pbtxt: what of it is read, what is reported as ignored, what refuses the model.
#include "engine/repository/triton/triton_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "chairlift/engine.h"
#include "engine/repository/triton/triton_fields.h"
#include "engine/test_models.h"

namespace chairlift {
namespace triton_config_test {

using ::testing::AllOf;
using testing::DoublingModel;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::TempFolder;
using testing::WriteFile;

StatusOr<FolderConfig> Parse(const std::string& text) { return ParseTritonConfig(text, "/r/m"); }

std::string Refusal(const std::string& text) {
  const Status status = Parse(text).status();
  EXPECT_FALSE(status.ok()) << text;
  return std::string(status.message());
}

TEST(TritonConfigTest, ReadsWhatHasACounterpart) {
  const auto read = Parse(R"(
name: "m"
backend: "onnxruntime"
max_batch_size: 16
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ -1 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 500
  default_queue_policy { default_timeout_microseconds: 9000 max_queue_size: 7 }
}
version_policy: { latest: { num_versions: 2 } }
default_model_filename: "net.onnx"
response_cache { enable: true }
parameters { key: "policy" value { string_value: "window" } }
)");
  ASSERT_TRUE(read.ok()) << read.status();
  const ModelConfig& config = read->config;
  EXPECT_EQ(config.max_batch_size, 16);
  EXPECT_THAT(config.preferred_batch_sizes, ElementsAre(4, 8));
  EXPECT_EQ(config.queue_delay_us, 500);
  EXPECT_EQ(config.default_timeout_us, 9000);
  EXPECT_EQ(config.max_queue_size, 7);
  EXPECT_GT(config.response_cache_bytes, 0);
  EXPECT_EQ(config.policy, "window");
  EXPECT_EQ(read->file, "net.onnx");
  EXPECT_EQ(read->versions.count, 2);
  ASSERT_EQ(read->ports.inputs.size(), 1);
  EXPECT_EQ(read->ports.inputs[0].name, "x");
  EXPECT_EQ(read->ports.inputs[0].dtype, DType::kFloat);
  EXPECT_THAT(read->ignored, IsEmpty());
}

TEST(TritonConfigTest, ReadsSequences) {
  const auto read = Parse(R"(
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 7 }
  state [ { input_name: "in" output_name: "out" data_type: TYPE_FP32 dims: [ 2 ] } ]
}
)");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->config.sequence_state, ElementsAre(Pair("out", "in")));
  EXPECT_EQ(read->config.max_sequence_idle_us, 5'000'000);
  EXPECT_EQ(read->config.queue_delay_us, 7);
  EXPECT_THAT(read->config.preferred_batch_sizes, ElementsAre(2));
  EXPECT_THAT(read->ignored, ElementsAre(HasSubstr("max_candidate_sequences")));
}

// All of protobuf's text format, and what Triton's own documentation writes.
TEST(TritonConfigTest, TakesEveryFormOfText) {
  for (const char* text : {
           "instance_group [ ]",
           "instance_group: []",
           "parameters: [ ]",
           "optimization { execution_accelerators { cpu_execution_accelerator : [ ] } }",
           "optimization < graph: < level: -1 >; >",
           "instance_group [ { count: 1 kind: KIND_CPU rate_limiter { resources [ { name: \"R1\" "
           "count: 4 } ] priority: 2 } } ]",
           "name: 'm' # a comment\nmax_batch_size: 0x8, default_model_filename: \"a\" \".onnx\";",
           "parameters: { key: 'a\\x41\\n\\u00e9' value: { string_value: \"\\101\" } }",
           "input { name: \"x\" data_type: 11 dims: -1 dims: [ 2, 0x3 ] }",
           "model_warmup [ { name: \"s\" batch_size: 1 inputs: [ { key: \"x\" value: { data_type: "
           "TYPE_FP32 dims: 1 zero_data: true } } ] } ]",
           "metric_tags [ { key: \"k\" value: \"v\" } ]",
       }) {
    const auto read = Parse(text);
    EXPECT_TRUE(read.ok()) << text << ": " << read.status();
  }
}

// Each field that may be set has one rule, and each rule a field.
TEST(TritonConfigTest, EveryFieldOfTheSchemaHasARule) {
  std::map<std::string, int> rules;
  for (const FieldRule& rule : FieldRules()) ++rules[std::string(rule.field)];
  const auto* const config =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
          "chairlift.triton.ModelConfig");
  ASSERT_NE(config, nullptr);
  std::set<std::string> fields;
  std::vector<const google::protobuf::Descriptor*> messages = {config};
  while (!messages.empty()) {
    const auto* const message = messages.back();
    messages.pop_back();
    for (int i = 0; i < message->field_count(); ++i) {
      const auto* const field = message->field(i);
      const std::string name = message->name() + "." + field->name();
      if (!fields.insert(name).second) continue;
      EXPECT_EQ(rules[name], 1) << name;
      const auto rule = std::find_if(FieldRules().begin(), FieldRules().end(),
                                     [&](const FieldRule& one) { return one.field == name; });
      if (field->message_type() == nullptr || rule == FieldRules().end()) continue;
      if (rule->use == FieldUse::kHonoured) messages.push_back(field->message_type());
    }
  }
  for (const auto& [name, count] : rules) EXPECT_TRUE(fields.contains(name)) << name;
}

TEST(TritonConfigTest, TheDocumentationShowsTheRules) {
  std::ifstream file(CHAIRLIFT_SOURCE "/docs/reference/repositories.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(docs, EndsWith("\n" + FieldTable()));
}

TEST(TritonConfigTest, RefusesWhatWouldChangeAnAnswer) {
  for (const char* text : {
           "model_repository_agents { agents [ { name: \"checksum\" } ] }",
           "model_transaction_policy { decoupled: true }",
           "input [ { name: \"x\" optional: true } ]",
           "sequence_batching { iterative_sequence: true }",
           "cc_model_filenames [ { key: \"7.5\" value: \"a\" } ]",
           "dynamic_batching { priority_queue_policy { key: 1 value { timeout_action: DELAY } } }",
       }) {
    EXPECT_TRUE(absl::IsUnimplemented(Parse(text).status())) << text << Parse(text).status();
  }
  // Set to what holds anyway.
  for (const char* text : {
           "model_repository_agents { agents [ ] }",
           "model_transaction_policy { decoupled: false }",
           "input [ { name: \"x\" optional: false format: FORMAT_NONE } ]",
       }) {
    const auto read = Parse(text);
    ASSERT_TRUE(read.ok()) << text << read.status();
    EXPECT_THAT(read->ignored, IsEmpty()) << text;
  }
}

TEST(TritonConfigTest, NamesOnceWhatItIgnores) {
  const auto read = Parse(R"(
instance_group [ { count: 2 kind: KIND_GPU }, { count: 1 } ]
optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "tensorrt" } ] } }
dynamic_batching { preserve_ordering: true }
parameters { key: "intra_op_thread_count" value { string_value: "4" } }
)");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->ignored,
              ElementsAre(AllOf(HasSubstr("instance_group"), HasSubstr("every worker")),
                          HasSubstr("dynamic_batching.preserve_ordering"),
                          HasSubstr("optimization"), HasSubstr("intra_op_thread_count")));
}

TEST(TritonConfigTest, RefusesByName) {
  EXPECT_THAT(Refusal("backend: \"python\""), HasSubstr("'python'"));
  EXPECT_THAT(Refusal("platform: \"ensemble\""), HasSubstr("'ensemble'"));
  EXPECT_THAT(Refusal("name: \"other\""), AllOf(HasSubstr("'other'"), HasSubstr("'m'")));
  EXPECT_THAT(Refusal("\nmax_batch_size: many"), HasSubstr("line 2"));
  EXPECT_THAT(Refusal("max_batch_size: -1"), HasSubstr("max_batch_size is -1"));
  EXPECT_THAT(Refusal("default_model_filename: \"../m.onnx\""), HasSubstr("../m.onnx"));
  EXPECT_THAT(Refusal("parameters { key: \"policy\" value { string_value: \"bus\" } }"),
              HasSubstr("'bus'"));
  EXPECT_THAT(Refusal("model_warmup { name: \"s\" inputs { key: \"x\" value { data_type: TYPE_FP32 "
                      "dims: [ 1000000, 1000000 ] zero_data: true } } }"),
              HasSubstr("model_warmup 's', input 'x'"));
  EXPECT_THAT(Refusal("\nsome_future_field: 7"),
              AllOf(HasSubstr("line 2"), HasSubstr("some_future_field")));
  EXPECT_THAT(Refusal("dynamic_batching {} sequence_batching {}"), HasSubstr("sequence_batching"));
  std::string deep;
  for (int i = 0; i < 40'000; ++i) deep += "optimization{cuda{";
  EXPECT_THAT(Refusal(deep), HasSubstr("line 1"));
  EXPECT_THAT(Refusal(std::string(2 << 20, '#')), HasSubstr("bytes"));
}

// Whatever the bytes are, they are read or refused.
TEST(TritonConfigTest, MutatedTextsNeverFailOtherwise) {
  const std::string seed =
      "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 } "
      "instance_group [ { count: 1 } ] input [ { name: \"x\" dims: [ -1, 4 ] } ] # end\n";
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = seed;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
      if (text.empty()) text = " ";
    }
    if (!Parse(text).ok()) ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 5000);
}

class TritonRepositoryTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok()); }
  Status Load(const std::string& config, const std::string& file = "model.onnx") {
    WriteFile(folder_ / "m/1" / file, DoublingModel().Bytes());
    WriteFile(folder_ / "m/config.pbtxt", config);
    return engine_->LoadFromRepository("m");
  }
  std::string Refusal(const std::string& config) {
    const Status status = Load(config);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_ = *Engine::Create({.workers = 1, .autotune = false});
};

TEST_F(TritonRepositoryTest, ServesAModelAsItsConfigurationSays) {
  const Status loaded =
      Load("max_batch_size: 4 default_model_filename: \"net.onnx\" instance_group { count: 2 }",
           "net.onnx");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(engine_->Metadata("m")->config.max_batch_size, 4);
  EXPECT_THAT(engine_->Index()[0].reason, HasSubstr("instance_group"));
  EXPECT_TRUE(
      engine_->Infer({.model = "m", .inputs = {{"x", Tensor::Of<float>({1, 4}, {1, 2, 3, 4})}}})
          .ok());
}

TEST_F(TritonRepositoryTest, NoVersionAtAllIsRefused) {
  EXPECT_THAT(Refusal("version_policy { specific { } }"), HasSubstr("names no version"));
  EXPECT_TRUE(absl::IsNotFound(engine_->Metadata("m").status()));
}

TEST_F(TritonRepositoryTest, AConfigurationBesideAModelYamlIsNamedAsIgnored) {
  WriteFile(folder_ / "m/model.yaml", "max_batch_size: 2\n");
  ASSERT_TRUE(Load("max_batch_size: 4").ok());
  EXPECT_EQ(engine_->Metadata("m")->config.max_batch_size, 2);
  EXPECT_THAT(engine_->Index()[0].reason,
              AllOf(HasSubstr("config.pbtxt"), HasSubstr("model.yaml is read instead")));
}

TEST_F(TritonRepositoryTest, APipeIsNoConfiguration) {
  WriteFile(folder_ / "p/1/model.onnx", DoublingModel().Bytes());
  ASSERT_EQ(::mkfifo((folder_ / "p/config.pbtxt").c_str(), 0600), 0);
  EXPECT_THAT(std::string(engine_->LoadFromRepository("p").message()),
              HasSubstr("not a regular file"));
}

TEST_F(TritonRepositoryTest, SettingsThatTheModelHasNoUseForAreDroppedAndNamed) {
  testing::ModelBuilder mixing(17);
  mixing.Input("x", testing::kFloat, {"n", 4}).Output("y", testing::kFloat);
  mixing.Node("CumSum", {"x", "axis"}, {"y"});
  mixing.Tensor("axis", testing::kInt64, {})->add_int64_data(0);
  WriteFile(folder_ / "m/1/model.onnx", mixing.Bytes());
  WriteFile(folder_ / "m/config.pbtxt",
            "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 100 }");
  const Status loaded = engine_->LoadFromRepository("m");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_THAT(engine_->Metadata("m")->diagnosis, HasSubstr("max_batch_size (4)"));
}

TEST_F(TritonRepositoryTest, TensorsThatTheModelDoesNotHaveRefuseIt) {
  EXPECT_THAT(Refusal("input [ { name: \"z\" } ]"),
              AllOf(HasSubstr("no input 'z'"), HasSubstr("are: 'x'")));
  EXPECT_THAT(Refusal("output [ { name: \"y\" data_type: TYPE_INT64 } ]"), HasSubstr("int64"));
}

TEST_F(TritonRepositoryTest, ModelsOfOtherBackendsAreListedWithTheReason) {
  WriteFile(folder_ / "py/1/model.py", "");
  WriteFile(folder_ / "py/config.pbtxt", "backend: \"python\"");
  WriteFile(folder_ / "trt/1/model.plan", "");
  EXPECT_FALSE(engine_->LoadFromRepository("py").ok());
  EXPECT_FALSE(engine_->LoadFromRepository("trt").ok());
  std::map<std::string, std::string> reasons;
  for (const ModelIndexEntry& entry : engine_->Index()) {
    EXPECT_EQ(entry.state, ModelState::kUnavailable);
    reasons[entry.name] = entry.reason;
  }
  EXPECT_THAT(reasons,
              ElementsAre(Pair("py", HasSubstr("'python'")), Pair("trt", HasSubstr("TensorRT"))));
}

TEST_F(TritonRepositoryTest, WarmUpRequestsRunAndOneThatFailsRefusesTheModel) {
  const auto config = [](const std::string& inputs) {
    return "max_batch_size: 4 model_warmup { name: \"s\" batch_size: 2 count: 3 inputs { key: "
           "\"x\" "
           "value { data_type: TYPE_FP32 dims: [ " +
           inputs + " } } }";
  };
  const Status loaded = Load(config("4 ] random_data: true"));
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ((*engine_->Statistics("m"))[0].inference_count, 6);
  EXPECT_THAT(Refusal(config("5 ] zero_data: true")), HasSubstr("model_warmup 's'"));
  EXPECT_FALSE(engine_->ModelReady("m"));
  const std::vector<float> raw(8, 1.0f);
  WriteFile(folder_ / "m/warmup/x.bin",
            std::string(reinterpret_cast<const char*>(raw.data()), raw.size() * sizeof(float)));
  EXPECT_TRUE(Load(config("4 ] input_data_file: \"x.bin\"")).ok());
  EXPECT_THAT(Refusal(config("2 ] input_data_file: \"x.bin\"")), HasSubstr("16 bytes"));
  EXPECT_THAT(Refusal(config("4 ] input_data_file: \"../config.pbtxt\"")),
              HasSubstr("config.pbtxt"));
}

TEST_F(TritonRepositoryTest, WhatAConfigurationAsksForIsBoundedTogether) {
  std::string samples, outputs;
  for (int i = 0; i < 100; ++i) {
    samples += "model_warmup { count: 1000 }\n";
    outputs += fmt::format("output {{ name: \"y{}\" label_filename: \"labels\" }}\n", i);
  }
  EXPECT_THAT(Refusal(samples), AllOf(HasSubstr("model_warmup"), HasSubstr("65536")));
  WriteFile(folder_ / "m/labels", std::string(size_t{1} << 20, 'x'));
  EXPECT_THAT(Refusal(outputs), AllOf(HasSubstr("label_filename"), HasSubstr("together")));
}

}  // namespace triton_config_test
}  // namespace chairlift
