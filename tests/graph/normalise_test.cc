// Old opset forms: what they become, and that the result computes what the old form meant.
#include "graph/onnx/normalise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "graph/evaluate.h"
#include "graph/model_builder.h"

namespace chairlift {
namespace {

using ::chairlift::testing::FindValue;
using ::chairlift::testing::GraphProtoBuilder;
using ::chairlift::testing::kFloat;
using ::chairlift::testing::kInt64;
using ::chairlift::testing::ModelBuilder;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// The graph's outputs for these inputs, node by node.
StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> values(graph.values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = graph.values[i].constant;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  WeightCache weights;
  SoloTeam team;
  for (const Node& node : graph.nodes) {
    std::vector<Tensor> arguments;
    for (const ValueId id : node.inputs) {
      arguments.push_back(id == kNoValue ? Tensor() : values[id]);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> results,
                               EvaluateNode(node, arguments, weights, team, 0));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) values[node.outputs[i]] = results[i];
    }
  }
  std::vector<Tensor> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(values[id]);
  return outputs;
}

// 0, 1, 2, ...
Tensor Iota(const Shape& shape) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = static_cast<float>(i);
  return t;
}

// A model with input x, output y and one node under test.
struct OldNode {
  OldNode(int opset, const std::string& op_type, std::initializer_list<std::string> inputs = {"x"},
          std::initializer_list<std::string> outputs = {"y"})
      : model(opset), node(model.Node(op_type, inputs, outputs)) {
    for (const std::string& name : outputs) model.Output(name);
  }
  OldNode& X(const std::vector<testing::DeclaredDim>& dims) {
    model.Input("x", kFloat, dims);
    return *this;
  }

  StatusOr<std::vector<float>> Run(const std::vector<Tensor>& inputs) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ImportedModel imported, model.Import());
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> out, Evaluate(imported.graph, inputs));
    return std::vector<float>(out[0].values<float>().begin(), out[0].values<float>().end());
  }
  // The only node, after normalisation.
  StatusOr<Node> Normalised() const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ImportedModel imported, model.Import());
    if (imported.graph.nodes.size() != 1) {
      return Internal("{} nodes instead of one", imported.graph.nodes.size());
    }
    return imported.graph.nodes[0];
  }

  ModelBuilder model;
  testing::NodeBuilder node;
};

#define EXPECT_VALUES(result, ...)                                                  \
  do {                                                                              \
    const auto r = (result);                                                        \
    ASSERT_TRUE(r.ok()) << r.status();                                              \
    EXPECT_THAT(*r, Pointwise(FloatNear(1e-6f), (std::vector<float> __VA_ARGS__))); \
  } while (false)

TEST(NormaliseTest, EveryRuleIsListedOnceAndEndsInsideTheSupportedOpsets) {
  std::set<std::pair<std::string, int>> seen;
  for (const NormaliseRule& rule : NormaliseRules()) {
    EXPECT_TRUE(seen.emplace(std::string(rule.op_type), rule.until).second) << rule.op_type;
    EXPECT_GT(rule.until, 1) << rule.op_type;
    EXPECT_LE(rule.until, 29) << rule.op_type;
  }
}

TEST(NormaliseTest, BroadcastAlongAnAxisBeforeOpset7) {
  OldNode old(6, "Add", {"x", "b"});
  old.X({2, 3, 2}).model.Floats("b", {3}, {10, 20, 30});
  old.node.Int("broadcast", 1).Int("axis", 1);
  EXPECT_VALUES(old.Run({Iota({2, 3, 2})}), {10, 11, 22, 23, 34, 35, 16, 17, 28, 29, 40, 41});
}

TEST(NormaliseTest, BroadcastAlongAnAxisThatDoesNotFitIsRefused) {
  for (const int64_t axis : {-9, 2, 3, 100}) {
    OldNode old(6, "Add", {"x", "b"});
    old.X({2, 3, 2}).model.Floats("b", {3, 2}, {1, 2, 3, 4, 5, 6});
    old.node.Int("broadcast", 1).Int("axis", axis);
    EXPECT_FALSE(old.model.Import().ok()) << axis;
  }
}

TEST(NormaliseTest, PReluSlopePerChannelBeforeOpset7) {
  OldNode old(6, "PRelu", {"x", "slope"});
  old.X({1, 2, 2}).model.Floats("slope", {2}, {10, 100});
  const Tensor x = Tensor::Of<float>({1, 2, 2}, {-1, 2, -3, -4});
  EXPECT_VALUES(old.Run({x}), {-10, 2, -300, -400});
}

TEST(NormaliseTest, ClipBoundsBecomeInputs) {
  OldNode both(6, "Clip");
  both.X({4}).node.Float("min", 1).Float("max", 2);
  EXPECT_VALUES(both.Run({Iota({4})}), {1, 1, 2, 2});
  OldNode above(10, "Clip");
  above.X({4}).node.Float("max", 2);
  EXPECT_VALUES(above.Run({Iota({4})}), {0, 1, 2, 2});
}

TEST(NormaliseTest, PadAmountsBecomeInputs) {
  OldNode old(10, "Pad");
  old.X({2}).node.Ints("pads", {1, 2}).Float("value", 9);
  EXPECT_VALUES(old.Run({Iota({2})}), {9, 0, 1, 9, 9});
  OldNode without(10, "Pad");
  without.X({2});
  EXPECT_THAT(Message(without.model.Import().status()), HasSubstr("pads"));
}

TEST(NormaliseTest, SliceRangesBecomeInputs) {
  OldNode old(9, "Slice");
  old.X({2, 3}).node.Ints("starts", {1}).Ints("ends", {3}).Ints("axes", {1});
  EXPECT_VALUES(old.Run({Iota({2, 3})}), {1, 2, 4, 5});
}

TEST(NormaliseTest, SplitSizesBecomeInputs) {
  OldNode old(11, "Split", {"x"}, {"y", "z"});
  old.X({5}).node.Ints("split", {2, 3});
  EXPECT_VALUES(old.Run({Iota({5})}), {0, 1});
}

TEST(NormaliseTest, SplitIntoEqualPartsIsCounted) {
  OldNode old(13, "Split", {"x"}, {"y", "z", "w"});
  old.X({6});
  EXPECT_VALUES(old.Run({Iota({6})}), {0, 1});
}

TEST(NormaliseTest, AxesBecomeInputs) {
  OldNode unsqueeze(11, "Unsqueeze");
  unsqueeze.X({"n", 3}).node.Ints("axes", {0, 3});
  auto model = unsqueeze.model.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(FindValue(model->graph, "y")->shape.ToString(), "[1,n,3,1]");
  OldNode squeeze(11, "Squeeze");
  squeeze.X({1, "n", 1}).node.Ints("axes", {2});
  model = squeeze.model.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(FindValue(model->graph, "y")->shape.ToString(), "[1,n]");
}

TEST(NormaliseTest, ReductionAxesBecomeInputs) {
  for (const auto& [op, opset] :
       std::vector<std::pair<std::string, int>>{{"ReduceSum", 11}, {"ReduceSum", 12}}) {
    OldNode old(opset, op);
    old.X({2, 3}).node.Ints("axes", {0}).Int("keepdims", 0);
    EXPECT_VALUES(old.Run({Iota({2, 3})}), {3, 5, 7});
  }
  OldNode mean(17, "ReduceMean");
  mean.X({2, 3}).node.Ints("axes", {-1}).Int("keepdims", 0);
  EXPECT_VALUES(mean.Run({Iota({2, 3})}), {1, 4});
  OldNode all(13, "ReduceMax");
  all.X({2, 3}).node.Int("keepdims", 0);
  EXPECT_VALUES(all.Run({Iota({2, 3})}), {5});
}

TEST(NormaliseTest, TopKCountBecomesAnInput) {
  OldNode old(9, "TopK", {"x"}, {"y", "indices"});
  old.X({5}).node.Int("k", 2);
  EXPECT_VALUES(old.Run({Iota({5})}), {4, 3});
}

TEST(NormaliseTest, SoftmaxBeforeOpset13TakesAllAxesFromOneOn) {
  OldNode old(11, "Softmax");
  old.X({"n", 2, 2}).node.Int("axis", 1);
  const Tensor zeros = Tensor::Of<float>({1, 2, 2}, {0, 0, 0, 0});
  EXPECT_VALUES(old.Run({zeros}), {0.25f, 0.25f, 0.25f, 0.25f});
  // The default axis was 1 too.
  OldNode by_default(11, "Softmax");
  by_default.X({1, 2, 2});
  EXPECT_VALUES(by_default.Run({zeros}), {0.25f, 0.25f, 0.25f, 0.25f});
  OldNode newer(13, "Softmax");
  newer.X({1, 2, 2});
  EXPECT_VALUES(newer.Run({zeros}), {0.5f, 0.5f, 0.5f, 0.5f});
}

TEST(NormaliseTest, SoftmaxOverTheLastAxisStaysOneNode) {
  OldNode old(11, "Softmax");
  old.X({"n", 2, 2}).node.Int("axis", 2);
  const auto node = old.Normalised();
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->attributes.Int("axis", 0), -1);
}

TEST(NormaliseTest, SoftmaxOfTwoDimensionsKeepsTheShape) {
  OldNode old(9, "LogSoftmax");
  old.X({"n", 2, 3, 5});
  const auto model = old.model.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(FindValue(model->graph, "y")->shape.ToString(), "[n,2,3,5]");
}

TEST(NormaliseTest, UpsampleBecomesResize) {
  for (const int opset : {7, 8}) {
    OldNode old(opset, "Upsample");
    old.X({1, 1, 1, 2}).node.Floats("scales", {1, 1, 2, 2});
    EXPECT_VALUES(old.Run({Iota({1, 1, 1, 2})}), {0, 0, 1, 1, 0, 0, 1, 1});
  }
  OldNode by_factors(6, "Upsample");
  by_factors.X({1, 1, 1, 2}).node.Float("height_scale", 1).Float("width_scale", 2);
  EXPECT_VALUES(by_factors.Run({Iota({1, 1, 1, 2})}), {0, 0, 1, 1});
  OldNode by_input(9, "Upsample", {"x", "scales"});
  by_input.X({1, 1, 1, 2}).model.Floats("scales", {4}, {1, 1, 1, 2});
  EXPECT_VALUES(by_input.Run({Iota({1, 1, 1, 2})}), {0, 0, 1, 1});
}

TEST(NormaliseTest, Resize10CountsFromTheCorner) {
  OldNode old(10, "Resize", {"x", "scales"});
  old.X({1, 1, 1, 2}).model.Floats("scales", {4}, {1, 1, 1, 2});
  old.node.String("mode", "linear");
  EXPECT_VALUES(old.Run({Iota({1, 1, 1, 2})}), {0, 0.5f, 1, 1});
}

TEST(NormaliseTest, EmptyInputsOfResizeAreAbsent) {
  OldNode old(11, "Resize", {"x", "roi", "scales", "sizes"});
  old.X({1, 1, 1, 2}).model.Floats("roi", {0}, {}).Floats("scales", {0}, {});
  old.model.Ints("sizes", {1, 1, 1, 4});
  const auto node = old.Normalised();
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->inputs[1], kNoValue);
  EXPECT_EQ(node->inputs[2], kNoValue);
}

TEST(NormaliseTest, ScatterBecomesScatterElements) {
  OldNode old(9, "Scatter", {"x", "i", "u"});
  old.X({3}).model.Ints("i", {1}).Floats("u", {1}, {7});
  EXPECT_VALUES(old.Run({Iota({3})}), {0, 7, 2});
}

TEST(NormaliseTest, DropoutOfInferenceIsWithoutRatio) {
  OldNode old(6, "Dropout");
  old.X({3}).node.Float("ratio", 0.9f).Int("is_test", 1);
  EXPECT_VALUES(old.Run({Iota({3})}), {0, 1, 2});
}

TEST(NormaliseTest, DropoutMaskOfOldIsOfTheDataType) {
  OldNode old(7, "Dropout", {"x"}, {"y", "mask"});
  old.X({3});
  const auto model = old.model.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(FindValue(model->graph, "mask")->dtype, DType::kFloat);
}

TEST(NormaliseTest, BatchNormalizationForTrainingIsRefused) {
  OldNode old(6, "BatchNormalization", {"x", "s", "b", "m", "v"});
  old.X({1, 1, 2});
  for (const char* name : {"s", "b", "m", "v"}) old.model.Floats(name, {1}, {1});
  EXPECT_THAT(Message(old.model.Import().status()), HasSubstr("is_test"));
  old.node.Int("is_test", 1).Float("epsilon", 0);
  EXPECT_VALUES(old.Run({Iota({1, 1, 2})}), {0, 1});
}

TEST(NormaliseTest, BatchNormalizationForTrainingTakesItsInputsStatistics) {
  // Channel 0: mean 2.5, variance 4.25; channel 1: mean 10, variance 1.
  const Tensor x = Tensor::Of<float>({2, 2, 2}, {0, 1, 9, 11, 4, 5, 9, 11});
  const float a = 1 / std::sqrt(4.25f);
  const std::vector<std::vector<float>> wanted = {
      {-2.5f * a, -1.5f * a, -1, 3, 1.5f * a, 2.5f * a, -1, 3}, {1.75f, 4}, {1.8125f, 1}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    OldNode now(15, "BatchNormalization", {"x", "s", "b", "m", "v"}, {"y", "mean", "var"});
    now.X({"batch", 2, "length"})
        .node.Int("training_mode", 1)
        .Float("epsilon", 0)
        .Float("momentum", 0.25f);
    now.model.Floats("s", {2}, {1, 2}).Floats("b", {2}, {0, 1});
    now.model.Floats("m", {2}, {-0.5f, -14}).Floats("v", {2}, {-5.5f, 1});
    const auto imported = now.model.Import();
    ASSERT_TRUE(imported.ok()) << imported.status();
    const auto out = Evaluate(imported->graph, {x});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_THAT((*out)[i].values<float>(), Pointwise(FloatNear(1e-6f), wanted[i]));
  }
  OldNode flat(15, "BatchNormalization", {"x", "s", "b", "m", "v"});
  flat.X({3}).node.Int("training_mode", 1);
  for (const char* name : {"s", "b", "m", "v"}) flat.model.Floats(name, {1}, {1});
  EXPECT_THAT(Message(flat.model.Import().status()), HasSubstr("rank of 2 or more"));
}

TEST(NormaliseTest, BatchNormalizationByPositionIsRefused) {
  OldNode old(7, "BatchNormalization", {"x", "s", "b", "m", "v"});
  old.X({1, 1, 2}).node.Int("spatial", 0);
  for (const char* name : {"s", "b", "m", "v"}) old.model.Floats(name, {1}, {1});
  EXPECT_THAT(Message(old.model.Import().status()), HasSubstr("spatial"));
}

TEST(NormaliseTest, GroupNormalizationScalesAreRepeatedForEachChannel) {
  OldNode old(18, "GroupNormalization", {"x", "s", "b"});
  old.X({1, 4, 2}).node.Int("num_groups", 2).Float("epsilon", 0);
  old.model.Floats("s", {2}, {1, 10}).Floats("b", {2}, {0, 100});
  const Tensor x = Tensor::Of<float>({1, 4, 2}, {-1, 1, -1, 1, -1, 1, -1, 1});
  EXPECT_VALUES(old.Run({x}), {-1, 1, -1, 1, 90, 110, 90, 110});
}

TEST(NormaliseTest, RulesHoldInsideBodies) {
  ModelBuilder m(11);
  m.Input("cond", testing::kBool, {}).Input("x", kFloat, {2, 1, 3}).Output("y");
  auto node = m.Node("If", {"cond"}, {"y"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    GraphProtoBuilder body(node.Body(branch));
    body.Output("v", kFloat).Node("Squeeze", {"x"}, {"v"}).Ints("axes", {1});
  }
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(FindValue(model->graph, "y")->shape.ToString(), "[2,3]");
}

TEST(NormaliseTest, InputsThatLaterOpsetsAddedAreRefusedInOldOnes) {
  OldNode old(11, "Unsqueeze", {"x", "axes"});
  old.X({2}).model.Ints("axes", {0});
  EXPECT_THAT(Message(old.model.Import().status()), HasSubstr("takes 1"));
}

TEST(NormaliseTest, SwishIsAProductWithItsGate) {
  const auto swish = [](float x, float alpha) { return x / (1 + std::exp(-alpha * x)); };
  OldNode node(24, "Swish");
  node.X({3});
  EXPECT_VALUES(node.Run({Iota({3})}), {swish(0, 1), swish(1, 1), swish(2, 1)});
  node.node.Float("alpha", 1.7f);
  EXPECT_VALUES(node.Run({Iota({3})}), {swish(0, 1.7f), swish(1, 1.7f), swish(2, 1.7f)});
  OldNode gated(28, "SwiGLU", {"x", "x"});
  gated.X({3});
  EXPECT_VALUES(gated.Run({Iota({3})}), {0, swish(1, 1), 2 * swish(2, 1)});
}

TEST(NormaliseTest, PositionsOfRotaryEmbeddingAreGathered) {
  OldNode node(23, "RotaryEmbedding", {"x", "cos", "sin", "positions"});
  node.X({1, 1, 2, 2}).model.Floats("cos", {3, 1}, {1, 0, 0.5f}).Floats("sin", {3, 1}, {0, 1, 0});
  auto* positions = node.model.Tensor("positions", kInt64, {1, 2});
  for (const int64_t place : {1, 2}) positions->add_int64_data(place);
  EXPECT_VALUES(node.Run({Iota({1, 1, 2, 2})}), {-1, 0, 1, 1.5f});
}

TEST(NormaliseTest, FormsOfTheFirstOpsets) {
  OldNode reshape(1, "Reshape");
  reshape.X({2, 3}).node.Ints("shape", {3, -1}).Ints("consumed_inputs", {0});
  EXPECT_VALUES(reshape.Run({Iota({2, 3})}), {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(FindValue(reshape.model.Import()->graph, "y")->shape.ToString(), "[3,2]");
  OldNode cast(1, "Cast");
  cast.X({2}).node.String("to", "DOUBLE");
  EXPECT_EQ(FindValue(cast.model.Import()->graph, "y")->dtype, DType::kDouble);
  cast.node.String("to", "REAL");
  EXPECT_FALSE(cast.model.Import().ok());
  OldNode concat(3, "Concat", {"x", "x"});
  concat.X({2, 1});
  EXPECT_VALUES(concat.Run({Iota({2, 1})}), {0, 0, 1, 1});
  OldNode pad(1, "Pad");
  pad.X({2}).node.Ints("paddings", {1, 0}).Float("value", 7);
  EXPECT_VALUES(pad.Run({Iota({2})}), {7, 0, 1});
  OldNode split(1, "Split", {"x", "sizes"}, {"y", "z"});
  split.X({3}).model.Ints("sizes", {2, 1});
  split.node.Int("axis", 0);
  EXPECT_VALUES(split.Run({Iota({3})}), {0, 1});
  OldNode tile(1, "Tile", {"x", "tiles", "axis"});
  tile.X({1, 2}).model.Ints("tiles", {2}).Ints("axis", {1});
  EXPECT_VALUES(tile.Run({Iota({1, 2})}), {0, 1, 0, 1});
  OldNode pool(1, "GlobalLpPool");
  pool.X({1, 1, 2}).node.Float("p", 1);
  EXPECT_VALUES(pool.Run({Iota({1, 1, 2})}), {1});
  OldNode selu(1, "Selu");
  selu.X({2});
  EXPECT_VALUES(selu.Run({Iota({2})}), {0, 1.0507f});
  OldNode add(1, "Add", {"x", "b"});
  add.X({2, 3}).model.Floats("b", {2}, {10, 20});
  add.node.Int("broadcast", 1).Int("axis", 0).Ints("consumed_inputs", {0, 0});
  EXPECT_VALUES(add.Run({Iota({2, 3})}), {10, 11, 12, 23, 24, 25});
}

TEST(NormaliseTest, EveryOpsetUpToTheNewestIsTaken) {
  for (const int opset : {22, 23, 24, 25, 26, 27, 28}) {
    OldNode node(opset, "Neg");
    node.X({2});
    EXPECT_VALUES(node.Run({Iota({2})}), {0, -1});
  }
  OldNode later(29, "Neg");
  later.X({2});
  EXPECT_THAT(Message(later.model.Import().status()), HasSubstr("opsets 1 to 28 are"));
}

}  // namespace
}  // namespace chairlift
