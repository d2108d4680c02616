// What inspect tells of passes: in words, and of the model as it runs.
#include "cli/passes_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_fixture.h"
#include "graph/model_builder.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using ::testing::Not;

PassReport Report(const std::string& name, int rewrites, std::vector<std::string> notes,
                  bool skipped = false) {
  PassReport report;
  report.name = name;
  report.rewrites = rewrites;
  report.time = std::chrono::microseconds(rewrites);
  report.notes = std::move(notes);
  report.skipped = skipped;
  return report;
}

TEST(PassesViewTest, NodesThatAreLeftForOneReasonAreOneLine) {
  const std::vector<PassReport> reports = {
      Report("fuse_attention", 1,
             {"node 'a' (Softmax): others read it", "node 'b: c' (Softmax): it is [2,3]",
              "node 'd' (Softmax): others read it", "node 'e' (Where): others read it",
              "node 'f' (Softmax): others read it"}),
      Report("fuse_conv", 0, {}), Report("fold_constants", 2, {"too large", "too large"})};
  EXPECT_THAT(LeftApart(reports),
              ElementsAre("fuse_attention: node 'a' (Softmax) and 2 more: others read it",
                          "fuse_attention: node 'b: c' (Softmax): it is [2,3]",
                          "fuse_attention: node 'e' (Where): others read it",
                          "fold_constants: too large (2 times)"));
}

TEST(PassesViewTest, PassesThatRanTwiceAreAddedUp) {
  const std::vector<PassReport> joined =
      Joined(std::vector<PassReport>{Report("a", 2, {"x", "y"}), Report("b", 0, {}, true)},
             std::vector<PassReport>{Report("a", 3, {"y", "z"}, true), Report("b", 0, {}, true),
                                     Report("c", 1, {})});
  ASSERT_EQ(joined.size(), 3u);
  EXPECT_EQ(joined[0].rewrites, 5);
  EXPECT_EQ(joined[0].time.count(), 5);
  EXPECT_THAT(joined[0].notes, ElementsAre("y", "z", "x"));
  EXPECT_FALSE(joined[0].skipped);
  EXPECT_TRUE(joined[1].skipped);
  EXPECT_EQ(joined[2].rewrites, 1);
}

class InspectPassesTest : public CommandFixture {
 protected:
  std::string Inspect(const std::string& file, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"inspect", file, "--passes"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    return outcome.output;
  }
  static std::string Encoder(const std::string& name) {
    return (std::filesystem::path(CHAIRLIFT_ENCODERS) / (name + ".onnx")).string();
  }
};

TEST_F(InspectPassesTest, AnEncoderThatRunsPacked) {
  const std::string told = Inspect(Encoder("minilm_hf5_dynamo_sdpa_18"));
  EXPECT_THAT(told,
              AllOf(HasSubstr("packed: used: the tokens of all requests form one batch"),
                    HasSubstr("token by token: 'input_ids', 'attention_mask'"),
                    HasSubstr("2 RaggedAttention, "),
                    HasSubstr("masks of 2 attentions: spread over queries and keys, proved to hide "
                              "the keys where 'attention_mask' is 0"),
                    HasSubstr("lengths up to 40"), HasSubstr("tried on examples, it answers")));
  EXPECT_THAT(told, AllOf(ContainsRegex("embeddings . LayerNorm +1 "),
                          ContainsRegex("queries, keys, values. in one +2 +of 3 products"),
                          ContainsRegex("activation, computed by the product +2 +Gelu"),
                          ContainsRegex("attention: [a-z, ]+ +2 +RaggedAttention"),
                          ContainsRegex("residual . LayerNorm +4 ")));
  // What ran before the tokens were packed is counted too.
  EXPECT_THAT(told, AllOf(ContainsRegex("fuse_attention +2 "), ContainsRegex("recognise_gelu +2 "),
                          Not(HasSubstr("not changed, by pass"))));
  EXPECT_THAT(told, HasSubstr("steps"));  // the memory of the packed model
  EXPECT_THAT(Inspect(Encoder("roberta_hf4_torchscript_eager_11")),
              AllOf(HasSubstr("masks of 2 attentions: followed token by token"),
                    HasSubstr("1 RaggedCumSum"), ContainsRegex("logits +float32 +.batch,2.")));
}

TEST_F(InspectPassesTest, WithoutItsPassWhatWasFusedIsNot) {
  const std::string told = Inspect(Encoder("bert_hf5_torchscript_sdpa_14"),
                                   {"--disable-pass", "fuse_embedding_layer_norm"});
  EXPECT_THAT(told, AllOf(ContainsRegex("fuse_embedding_layer_norm +off "),
                          Not(ContainsRegex("embeddings . LayerNorm +1 "))));
}

TEST_F(InspectPassesTest, ShapesThatNoRequestCanHaveHaveNoPlan) {
  const std::string file = Encoder("minilm_hf5_dynamo_sdpa_18");
  EXPECT_THAT(
      Inspect(file, {"--batch-size", "2", "--length", "5"}),
      HasSubstr(
          "memory of a request of input_ids[2,5], attention_mask[2,5], token_type_ids[2,5]:"));
  // What was named and does not fit is an error.
  EXPECT_THAT(Refusal({"inspect", file, "--length", "5", "--shape", "attention_mask=2x9"}, 1),
              HasSubstr("must be equal"));
  EXPECT_THAT(Refusal({"inspect", file, "--shape", "input_ids=5"}, 1),
              HasSubstr("set other shapes, as --shape input_ids=BATCHxLENGTH"));
  EXPECT_THAT(Refusal({"inspect", file, "--shape", "input_ids=4000000000x4000000000"}, 1),
              HasSubstr("input 'input_ids'"));
}

// Two layers of attention whose weights are outputs too, before embeddings that nothing
// normalises.
std::string WeightsGivenOut() {
  ModelBuilder m(17);
  m.Input("ids", kInt64, {"batch", "length"});
  auto* table = m.Tensor("table", kFloat, {8, 4});
  for (int i = 0; i < 32; ++i) table->add_float_data(static_cast<float>(i % 5) * 0.25f);
  m.Ints("heads", {0, 0, 2, 2}).Ints("joined", {0, 0, 4});
  m.Node("Gather", {"table", "ids"}, {"a"}).Name("words");
  m.Node("Gather", {"table", "ids"}, {"b"}).Name("types");
  m.Node("Add", {"a", "b"}, {"x0"}).Name("embeddings");
  for (const std::string n : {"0", "1"}) {
    const auto of = [&n](const std::string& name) { return name + n; };
    m.Node("Reshape", {of("x"), "heads"}, {of("split")});
    m.Node("Transpose", {of("split")}, {of("q")}).Ints("perm", {0, 2, 1, 3});
    m.Node("Transpose", {of("split")}, {of("k")}).Ints("perm", {0, 2, 3, 1});
    m.Node("MatMul", {of("q"), of("k")}, {of("scores")}).Name(of("scores"));
    m.Node("Softmax", {of("scores")}, {of("weights")}).Name(of("softmax")).Int("axis", -1);
    m.Node("MatMul", {of("weights"), of("q")}, {of("heads_out")});
    m.Node("Transpose", {of("heads_out")}, {of("merged")}).Ints("perm", {0, 2, 1, 3});
    m.Node("Reshape", {of("merged"), "joined"}, {"x" + std::to_string(n[0] - '0' + 1)});
    m.Output(of("weights"), kFloat);
  }
  m.Output("x2", kFloat);
  return m.Bytes();
}

TEST_F(InspectPassesTest, WhatIsLeftIsToldWithItsReason) {
  const std::string told = Inspect(File("weights.onnx", WeightsGivenOut()));
  const std::string why = "not one product with values alone reads its weights";
  EXPECT_THAT(told,
              HasSubstr("packed: not used: node 'scores0' (MatMul): its inputs have the length "
                        "along different dimensions; not recognised as attention: node 'softmax0' "
                        "(Softmax): " +
                        why + " (and 1 more)\n"));
  EXPECT_THAT(told, HasSubstr("not changed, by pass:\n"));
  EXPECT_THAT(told, HasSubstr("fuse_attention: node 'softmax0' (Softmax) and 1 more: " + why));
  EXPECT_THAT(told, HasSubstr("fuse_embedding_layer_norm: node 'embeddings' (Add): no layer "
                              "normalisation follows this sum of embeddings"));
}

}  // namespace
}  // namespace chairlift
