// What the files beside a tokenizer say of how texts become vectors or scores.
#include "engine/repository/text_model.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

SymbolicSpec Spec(const char* name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, SymbolicShape(std::move(dims))};
}
SymbolicSpec Hidden() {
  return Spec("last_hidden_state", DType::kFloat,
              {Dim::Symbol("batch"), Dim::Symbol("length"), Dim(8)});
}

class TextModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    encoder_.inputs = {Spec("input_ids", DType::kInt64, {Dim(), Dim()}),
                       Spec("attention_mask", DType::kInt32, {Dim(), Dim()})};
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
  EXPECT_EQ(Embedding({.pooling = Pooling::kCls}).pooling, Pooling::kCls);
  Put("1_Pooling/config.json",
      R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false})");
  EXPECT_EQ(Embedding().pooling, Pooling::kMean);
  EXPECT_EQ(Embedding().from, "last_hidden_state");
  EXPECT_EQ(Embedding({.pooling = Pooling::kCls}).pooling, Pooling::kCls);
  Put("1_Pooling/config.json", R"({"pooling_mode": "cls"})");
  EXPECT_EQ(Embedding().pooling, Pooling::kCls);
  Put("1_Pooling/config.json",
      R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})");
  EXPECT_THAT(Refusal(), HasSubstr("one of them"));
  Put("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_THAT(Refusal(), HasSubstr("pool by max_tokens"));
  Put("1_Pooling/config.json", "{");
  EXPECT_THAT(Refusal(), HasSubstr("is not JSON"));
}

TEST_F(TextModelTest, ModulesSayWhatElseHappens) {
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  EXPECT_TRUE(Embedding().normalize);  // nothing says that it is not
  Put("modules.json", R"([{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "2_Pool"}])");
  Put("2_Pool/config.json", R"({"pooling_mode_mean_tokens": true})");
  EXPECT_EQ(Embedding().pooling, Pooling::kMean);
  EXPECT_FALSE(Embedding().normalize);
  EXPECT_TRUE(Embedding({.normalize = true}).normalize);
  Put("modules.json", R"([{"type": "a.Normalize"}, {"type": "a.Pooling", "path": "1_Pooling"}])");
  EXPECT_TRUE(Embedding().normalize);
  Put("modules.json", R"([{"type": "a.Dense"}])");
  EXPECT_THAT(Refusal(), HasSubstr("module 'Dense'"));
  Put("modules.json", R"([{"type": "a.Pooling", "path": "../../etc"}])");
  EXPECT_THAT(Refusal(), HasSubstr("outside of its folder"));
}

TEST_F(TextModelTest, TheModelsOwnVectorComesFirst) {
  encoder_.outputs.push_back(Spec("sentence_embedding", DType::kFloat, {Dim(), Dim(8)}));
  EXPECT_EQ(Embedding().from, "sentence_embedding");
  EXPECT_EQ(Embedding().pooling, Pooling::kNone);
  EXPECT_EQ(Embedding({.pooling = Pooling::kMean}).from, "last_hidden_state");
  encoder_.outputs = {Spec("y", DType::kDouble, {Dim(), Dim(), Dim(8)})};
  EXPECT_THAT(Refusal(), HasSubstr("'y' FP64"));
  encoder_.outputs = {Spec("sentence_embedding", DType::kFloat16, {Dim(), Dim(8)})};
  EXPECT_EQ(Embedding().from, "sentence_embedding");
}

TEST_F(TextModelTest, OneScoreOfAPairIsAReranker) {
  encoder_.outputs = {Spec("logits", DType::kFloat, {Dim(), Dim(1)})};
  EXPECT_TRUE((*Find())->pairs);
  EXPECT_EQ((*Find())->pipeline.outputs[0], "logits");
  encoder_.outputs = {Spec("logits", DType::kFloat16, {Dim(), Dim(1)})};
  EXPECT_THAT(Refusal(), HasSubstr("keep_io_types=True"));
  encoder_.outputs = {Spec("logits", DType::kFloat, {Dim(), Dim()})};
  EXPECT_THAT(Refusal(), HasSubstr("'logits' [batch, 1]"));
  Put("config.json", R"({"id2label": {"0": "LABEL_0"}})");
  EXPECT_TRUE((*Find())->pairs);
  Put("config.json", R"({"id2label": {"0": "a", "1": "b"}})");
  EXPECT_FALSE(Find().ok());
}

TEST_F(TextModelTest, TheTokenizerGivesWhatTheEncoderTakes) {
  Put("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  const TextModel model = **Find();
  EXPECT_EQ(model.tokenizer.file, "/worker/_tokenizer.py");
  EXPECT_THAT(model.tokenizer.argument, HasSubstr(R"("attention_mask":"int32")"));
  EXPECT_EQ(model.pipeline.steps[0].model, "m/tokenizer");
  encoder_.inputs.push_back(Spec("pixels", DType::kInt64, {Dim()}));
  EXPECT_THAT(Refusal(), HasSubstr("it takes 'pixels'"));
  encoder_.inputs.back() = Spec("token_type_ids", DType::kFloat, {Dim(), Dim()});
  EXPECT_THAT(Refusal(), HasSubstr("'token_type_ids' FP32"));
}

TEST_F(TextModelTest, WithoutATokenizerThereIsNone) {
  const auto found = FindTextModel("m", folder_ / "other/model.onnx", {}, encoder_, "/worker");
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
}

}  // namespace
}  // namespace chairlift
