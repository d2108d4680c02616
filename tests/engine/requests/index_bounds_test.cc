// A request with an index outside of its table: the error names the request's input and element,
// however the model is served.
#include "engine/requests/index_bounds.h"

#include <gmock/gmock.h>

#include "engine/recurrent_models.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using ::testing::Not;
using testing::RandomWeights;

class IndexBoundsTest : public ::testing::Test {
 protected:
  Status Load(const std::string& file, const ModelConfig& config) {
    return engine_->LoadModel("m", file, config);
  }
  Status Load(const ModelBuilder& model, const ModelConfig& config = {}) {
    return Load(testing::WriteFile(folder_ / "m.onnx", model.Bytes()), config);
  }

  std::string Refusal(std::vector<NamedTensor> inputs) {
    InferRequest request;
    request.model = "m";
    request.inputs = std::move(inputs);
    const Status status = engine_->Infer(std::move(request)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  testing::TempFolder folder_;
  std::unique_ptr<Engine> engine_ =
      *Engine::Create({.workers = 2, .memory_budget = int64_t{1} << 40, .autotune = false});
};

TEST_F(IndexBoundsTest, TheInputIsFoundThroughCastsAndReshapes) {
  ModelBuilder m(17);
  m.Input("ids", onnx::TensorProto::INT32, {"batch", 3}).Output("y", kFloat);
  RandomWeights(m, "table", {2, 5}, 1);
  m.Ints("flat", {-1});
  m.Node("Cast", {"ids"}, {"long"}).Int("to", kInt64);
  m.Node("Transpose", {"long"}, {"turned"}).Ints("perm", {1, 0});
  m.Node("Reshape", {"turned", "flat"}, {"indices"});
  m.Node("Gather", {"table", "indices"}, {"y"}).Int("axis", -1);
  ASSERT_TRUE(Load(m).ok());
  EXPECT_EQ(Refusal({{"ids", Tensor::Of<int32_t>({2, 3}, {4, -5, 0, 1, 5, -6})}}),
            "input 'ids': element [1,1] is 5; it is an index along axis 1 of 'table', of shape "
            "[2,5], from -5 to 4");
  EXPECT_THAT(Refusal({{"ids", Tensor::Of<int32_t>({1, 3}, {0, 1, -6})}}),
              HasSubstr("element [0,2] is -6"));
}

TEST_F(IndexBoundsTest, FloatsAreCutOff) {
  ModelBuilder m(17);
  m.Input("id", kFloat, {}).Output("y", kFloat);
  RandomWeights(m, "table", {3, 2}, 1);
  m.Node("Cast", {"id"}, {"index"}).Int("to", kInt64);
  m.Node("Gather", {"table", "index"}, {"y"});
  ASSERT_TRUE(Load(m).ok());
  EXPECT_THAT(Refusal({{"id", Tensor::Of<float>({}, {3.5F})}}), HasSubstr("element [] is 3.5"));
}

TEST_F(IndexBoundsTest, ComputedIndicesAreThoseOfTheirNode) {
  ModelBuilder m(17);
  m.Input("ids", kInt64, {"n"}).Output("y", kFloat).Output("z", kFloat);
  RandomWeights(m, "table", {3, 2}, 1);
  RandomWeights(m, "long", {100, 2}, 2);
  m.Node("Add", {"ids", "ids"}, {"twice"});
  m.Node("Gather", {"table", "twice"}, {"y"});
  m.Node("Gather", {"long", "ids"}, {"z"});
  ASSERT_TRUE(Load(m).ok());
  EXPECT_THAT(Refusal({{"ids", Tensor::Of<int64_t>({1}, {50})}}), HasSubstr("(Gather): index 100"));
}

TEST_F(IndexBoundsTest, CellsNameTheInput) {
  ASSERT_TRUE(Load(testing::TokenClassifier()).ok());
  ASSERT_EQ(engine_->Metadata("m")->config.policy, "cellular");
  EXPECT_EQ(Refusal({{"x", Tensor::Of<int64_t>({1, 4}, {1, 10, 11, 2})}}),
            "input 'x': element [0,2] is 11; it is an index along axis 0 of 'table', of shape "
            "[11,6], from -11 to 10");
}

class EncoderIndexTest : public IndexBoundsTest,
                         public ::testing::WithParamInterface<const char*> {};

TEST_P(EncoderIndexTest, NamesTheInputAndThePlaceInIt) {
  ModelConfig config;
  config.policy = GetParam();
  ASSERT_TRUE(
      Load(std::string(CHAIRLIFT_ENCODERS) + "/bert_hf4_torchscript_eager_11.onnx", config).ok());
  const Tensor ones = Tensor::Of<int64_t>({2, 3}, {1, 0, 1, 1, 1, 1});
  // A token that is hidden may be left out of a packed batch, so positions there are others.
  const std::string refusal =
      Refusal({{"input_ids", Tensor::Of<int64_t>({2, 3}, {1, 2, 3, 4, 70000, 6})},
               {"attention_mask", ones},
               {"token_type_ids", Tensor::Of<int64_t>({2, 3}, {0, 0, 0, 0, 0, 0})}});
  EXPECT_THAT(refusal, HasSubstr("input 'input_ids': element [1,1] is 70000; "));
  EXPECT_THAT(refusal, Not(HasSubstr("node")));
  EXPECT_THAT(Refusal({{"input_ids", Tensor::Of<int64_t>({2, 3}, {1, 2, 3, 4, 5, 6})},
                       {"attention_mask", ones},
                       {"token_type_ids", Tensor::Of<int64_t>({2, 3}, {0, 0, 0, 0, 0, 2})}}),
              HasSubstr("input 'token_type_ids': element [1,2] is 2; "));
}

INSTANTIATE_TEST_SUITE_P(Policies, EncoderIndexTest,
                         ::testing::Values("", "packed", "naive", "length_dp", "window", "none"));

// Tokens that are left out are not computed, and so not to blame.
TEST(IndexBoundTest, ElementsThatAreLeftOutAreNotLookedAt) {
  Signature signature;
  signature.inputs = {{"ids", DType::kInt64, SymbolicShape()}};
  signature.sequences.emplace();
  signature.sequences->token_inputs = {true};
  ValidatedRequest request;
  request.inputs = {Tensor::Of<int64_t>({1, 3}, {9, 1, 8})};
  request.left_out = {true, false, false};
  const std::vector<IndexBound> bounds = {{.input = "ids", .bound = 5, .indexed = "a table"}};
  EXPECT_THAT(CheckIndexBounds(signature, bounds, request).message(), HasSubstr("[0,2] is 8"));
  request.left_out[2] = true;
  EXPECT_TRUE(CheckIndexBounds(signature, bounds, request).ok());
}

}  // namespace
}  // namespace chairlift
