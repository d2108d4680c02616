// What the files beside a tokenizer say of how texts become vectors or scores.
#include "engine/repository/text_model.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFolder;
using testing::WriteFile;

SymbolicSpec InputOf(const char* name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, SymbolicShape(std::move(dims))};
}
SymbolicSpec Hidden() {
  return InputOf("last_hidden_state", DType::kFloat,
                 {Dim::Symbol("batch"), Dim::Symbol("length"), Dim(8)});
}

class TextModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    encoder_.inputs = {InputOf("input_ids", DType::kInt64, {Dim(), Dim()}),
                       InputOf("attention_mask", DType::kInt32, {Dim(), Dim()})};
    encoder_.outputs = {Hidden()};
    WriteFile(folder_ / "m/tokenizer.json", "{}");
  }
  void Put(const std::string& file, const std::string& text) {
    WriteFile(folder_ / "m" / file, text);
  }
  StatusOr<std::optional<TextModel>> Find(const TextSettings& settings = {}) {
    return FindTextModel("m", folder_ / "m/1/model.onnx", settings, encoder_, "/worker");
  }
  std::string Refusal(const TextSettings& settings = {}) {
    return std::string(Find(settings).status().message());
  }
  EmbeddingConfig Embedding(const TextSettings& settings = {}) {
    const auto found = Find(settings);
    EXPECT_TRUE(found.ok()) << found.status();
    if (!found.ok() || !*found || !(*found)->pipeline.embedding) return {};
    return *(*found)->pipeline.embedding;
  }

  TempFolder folder_;
  Signature encoder_;
};

TEST_F(TextModelTest, PoolingMustBeKnown) {
  EXPECT_THAT(Refusal(), HasSubstr("there is no 1_Pooling/config.json"));
  EXPECT_THAT(Embedding({.pooling = Pooling::kCls}).pooling, ElementsAre(Pooling::kCls));
  Put("1_Pooling/config.json",
      R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false})");
  EXPECT_THAT(Embedding().pooling, ElementsAre(Pooling::kMean));
  EXPECT_EQ(Embedding().from, "last_hidden_state");
  EXPECT_THAT(Embedding({.pooling = Pooling::kCls}).pooling, ElementsAre(Pooling::kCls));
  Put("1_Pooling/config.json", R"({"pooling_mode": "cls"})");
  EXPECT_THAT(Embedding().pooling, ElementsAre(Pooling::kCls));
  Put("1_Pooling/config.json",
      R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})");
  EXPECT_THAT(Embedding().pooling, ElementsAre(Pooling::kCls, Pooling::kMean));
  Put("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
  EXPECT_THAT(Embedding().pooling, ElementsAre(Pooling::kLast));
  Put("1_Pooling/config.json", R"({"pooling_mode": ["max", "weightedmean"]})");
  EXPECT_THAT(Embedding().pooling, ElementsAre(Pooling::kMax, Pooling::kWeightedMean));
  Put("1_Pooling/config.json", R"({"pooling_mode_median_tokens": true})");
  EXPECT_THAT(
      Refusal(),
      HasSubstr("the pooling median_tokens, which is not supported; supported are cls, max, mean"));
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": false})");
  EXPECT_THAT(Refusal(), HasSubstr("turns every pooling off"));
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": 1})");
  EXPECT_THAT(Refusal(), HasSubstr("pooling_mode_cls_token"));
  Put("1_Pooling/config.json", "{");
  EXPECT_THAT(Refusal(), HasSubstr("is not JSON"));
}

TEST_F(TextModelTest, ModulesSayWhatElseHappens) {
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  EXPECT_TRUE(Embedding().normalize);  // nothing says that it is not
  Put("modules.json", R"([{"type": "sentence_transformers.models.Transformer"},
              {"type": "sentence_transformers.models.Pooling", "path": "2_Pool"}])");
  Put("2_Pool/config.json", R"({"pooling_mode_mean_tokens": true})");
  EXPECT_THAT(Embedding().pooling, ElementsAre(Pooling::kMean));
  EXPECT_FALSE(Embedding().normalize);
  EXPECT_TRUE(Embedding({.normalize = true}).normalize);
  Put("modules.json", R"([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
                          {"type": "sentence_transformers.models.Normalize"}])");
  EXPECT_TRUE(Embedding().normalize);
  Put("modules.json", R"([{"type": "sentence_transformers.models.Dense"}])");
  EXPECT_THAT(Refusal(), HasSubstr("models.Dense'"));
  Put("modules.json", R"([{"type": "custom.Pooling"}])");
  EXPECT_THAT(Refusal(), HasSubstr("module 'custom.Pooling'"));
  Put("modules.json", R"([{"type": "sentence_transformers.models.Normalize"},
                          {"type": "sentence_transformers.models.Pooling"}])");
  EXPECT_THAT(Refusal(), HasSubstr("the order is Transformer, Pooling, Normalize"));
  Put("modules.json", R"({})");
  EXPECT_THAT(Refusal(), HasSubstr("is not a list of modules"));
  Put("modules.json", R"([{"type": "sentence_transformers.models.Pooling", "path": "../../etc"}])");
  EXPECT_THAT(Refusal(), HasSubstr("outside of its folder"));
}

// The tokenizer's argument.
TEST_F(TextModelTest, PromptsAndLowerCaseGoToTheTokenizer) {
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  Put("config_sentence_transformers.json",
      R"({"prompts": {"query": "q: ", "passage": ""}, "default_prompt_name": "query",
          "similarity_fn_name": "dot", "__version__": {"pytorch": "2"}})");
  Put("sentence_bert_config.json", R"({"max_seq_length": 12, "do_lower_case": true})");
  const TextModel model = **Find();
  EXPECT_THAT(model.tokenizer.argument, HasSubstr(R"("prompt":"q: ")"));
  EXPECT_THAT(model.tokenizer.argument, HasSubstr(R"({"passage":"","query":"q: "})"));
  EXPECT_THAT(model.tokenizer.argument, HasSubstr(R"("lower":true)"));
  EXPECT_THAT(model.tokenizer.argument, HasSubstr(R"("tokens":12)"));
  EXPECT_THAT(model.ignored, ElementsAre("config_sentence_transformers.json: similarity_fn_name"));
}

TEST_F(TextModelTest, FieldsThatWouldChangeVectorsAreRefusedByName) {
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "include_prompt": false})");
  const auto prompts = [this](const std::string& text) {
    Put("config_sentence_transformers.json", text);
    return Refusal();
  };
  EXPECT_EQ(prompts(R"({"prompts": {"query": "q: "}, "default_prompt_name": null})"), "");
  EXPECT_THAT(prompts(R"({"prompts": {"a": "q: "}, "default_prompt_name": "a"})"),
              HasSubstr("\"include_prompt\""));
  EXPECT_THAT(prompts(R"({"prompts": {"a": "q: "}, "default_prompt_name": "b"})"),
              HasSubstr("\"default_prompt_name\""));
  EXPECT_THAT(prompts(R"({"default_prompt_name": "b"})"), HasSubstr("\"default_prompt_name\""));
  EXPECT_THAT(prompts(R"({"prompts": {"a": 1}})"), HasSubstr("\"prompts\""));
  EXPECT_THAT(prompts(R"({"prompts": ["a"]})"), HasSubstr("\"prompts\""));
  EXPECT_THAT(prompts(R"({"prompts": {"a": ")" + std::string(70'000, 'x') + R"("}})"),
              HasSubstr("more than 65536 bytes"));
  EXPECT_THAT(prompts(R"({"truncate_dim": 4})"), HasSubstr("\"truncate_dim\""));
  EXPECT_THAT(prompts(R"({"model_type": "SparseEncoder"})"), HasSubstr("\"model_type\""));
  EXPECT_THAT(prompts("[]"), HasSubstr("is not a JSON object"));
  EXPECT_EQ(prompts(R"({"truncate_dim": null, "prompts": {}})"), "");
  const auto transformer = [this](const std::string& text) {
    Put("sentence_bert_config.json", text);
    return Refusal();
  };
  EXPECT_THAT(transformer(R"({"max_seq_length": 0})"), HasSubstr("\"max_seq_length\""));
  EXPECT_THAT(transformer(R"({"do_lower_case": "yes"})"), HasSubstr("\"do_lower_case\""));
  EXPECT_THAT(transformer(R"({"tokenizer_args": {"a": 1}})"), HasSubstr("\"tokenizer_args\""));
  EXPECT_EQ(transformer(R"({"max_seq_length": null, "tokenizer_args": {}})"), "");
}

TEST_F(TextModelTest, ThePromptOfAScoreIsRefused) {
  Put("config_sentence_transformers.json",
      R"({"prompts": {"a": "q: "}, "default_prompt_name": "a", "model_type": "CrossEncoder"})");
  for (const int classes : {1, 3}) {
    encoder_.outputs = {InputOf("logits", DType::kFloat, {Dim(), Dim(classes)})};
    EXPECT_THAT(Refusal(), HasSubstr("\"default_prompt_name\""));
  }
}

TEST_F(TextModelTest, ATokenizerMayLieAboveTheFolderOfTheHub) {
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  for (const char* file : {"m/onnx/model.onnx", "m/1/onnx/model.onnx", "m/model.onnx"}) {
    const auto found = FindTextModel("m", folder_ / file, {}, encoder_, "/worker");
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->has_value()) << file;
  }
}

TEST_F(TextModelTest, TheModelsOwnVectorComesFirst) {
  encoder_.outputs.push_back(InputOf("sentence_embedding", DType::kFloat, {Dim(), Dim(8)}));
  EXPECT_EQ(Embedding().from, "sentence_embedding");
  EXPECT_THAT(Embedding().pooling, IsEmpty());
  EXPECT_EQ(Embedding({.pooling = Pooling::kMean}).from, "last_hidden_state");
  encoder_.outputs = {InputOf("y", DType::kDouble, {Dim(), Dim(), Dim(8)})};
  EXPECT_THAT(Refusal(), HasSubstr("'y' FP64"));
  encoder_.outputs = {InputOf("sentence_embedding", DType::kFloat16, {Dim(), Dim(8)})};
  EXPECT_EQ(Embedding().from, "sentence_embedding");
}

TEST_F(TextModelTest, OneScoreOfAPairIsAReranker) {
  encoder_.outputs = {InputOf("logits", DType::kFloat, {Dim(), Dim(1)})};
  EXPECT_TRUE((*Find())->pairs);
  EXPECT_EQ((*Find())->pipeline.outputs[0], "logits");
  encoder_.outputs = {InputOf("logits", DType::kFloat16, {Dim(), Dim(1)})};
  EXPECT_THAT(Refusal(), HasSubstr("keep_io_types=True"));
  encoder_.outputs = {InputOf("logits", DType::kFloat, {Dim(), Dim()})};
  EXPECT_THAT(Refusal(), HasSubstr("'logits' [batch, 1]"));
  Put("config.json", R"({"id2label": {"0": "LABEL_0"}})");
  EXPECT_TRUE((*Find())->pairs);
  Put("config.json", R"({"id2label": {"0": "a", "1": "b"}})");
  EXPECT_FALSE((*Find())->pairs);
  EXPECT_TRUE((*Find())->classes);
}

TEST_F(TextModelTest, ScoresOfSeveralClassesClassify) {
  using ::testing::ElementsAre;
  encoder_.outputs = {InputOf("logits", DType::kFloat, {Dim(), Dim(2)})};
  EXPECT_THAT((*Find())->pipeline.classes->labels, ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_FALSE((*Find())->pipeline.classes->several);
  EXPECT_THAT((*Find())->tokenizer.argument, HasSubstr(R"("pairs":true)"));
  Put("config.json",
      R"({"id2label": {"1": "b", "0": "a"}, "problem_type": "multi_label_classification"})");
  EXPECT_THAT((*Find())->pipeline.classes->labels, ElementsAre("a", "b"));
  EXPECT_TRUE((*Find())->pipeline.classes->several);
  for (const char* labels : {R"({"0": "a"})", R"({"0": "a", "2": "b"})", R"({"0": "a", "1": 5})",
                             R"(["a", "b"])", "5"}) {
    Put("config.json", fmt::format(R"({{"id2label": {}}})", labels));
    EXPECT_THAT(Refusal(), HasSubstr("\"id2label\"")) << labels;
  }
  Put("config.json", R"({"problem_type": "regression"})");
  EXPECT_THAT(Refusal(), HasSubstr("\"problem_type\" of its config.json is \"regression\""));
  encoder_.outputs = {InputOf("logits", DType::kFloat, {Dim(), Dim(5000)})};
  EXPECT_THAT(Refusal(), HasSubstr("5000 classes"));
}

TEST_F(TextModelTest, TheTokenizerGivesWhatTheEncoderTakes) {
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  const TextModel model = **Find();
  EXPECT_EQ(model.tokenizer.file, "/worker/_tokenizer.py");
  EXPECT_THAT(model.tokenizer.argument, HasSubstr(R"("attention_mask":"int32")"));
  EXPECT_EQ(model.pipeline.steps[0].model, "m/tokenizer");
  encoder_.inputs.push_back(InputOf("pixels", DType::kInt64, {Dim()}));
  EXPECT_THAT(Refusal(), HasSubstr("it takes 'pixels'"));
  encoder_.inputs.back() = InputOf("token_type_ids", DType::kFloat, {Dim(), Dim()});
  EXPECT_THAT(Refusal(), HasSubstr("'token_type_ids' FP32"));
}

TEST_F(TextModelTest, WithoutATokenizerThereIsNone) {
  const auto found = FindTextModel("m", folder_ / "other/model.onnx", {}, encoder_, "/worker");
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
}

}  // namespace
}  // namespace chairlift
