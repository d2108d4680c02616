// Operators of domain com.microsoft: what they become, and that it computes what they mean.
#include "graph/onnx/contrib/contrib.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "graph/evaluate.h"
#include "graph/model_builder.h"
#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::FindValue;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt4;
using testing::kInt64;
using testing::kUInt4;
using testing::ModelBuilder;
using ::testing::Pointwise;

constexpr int kInt8 = onnx::TensorProto::INT8;
constexpr int kUInt8 = onnx::TensorProto::UINT8;
constexpr int kInt32 = onnx::TensorProto::INT32;

// A model whose only node is of domain com.microsoft; its inputs are the model's.
struct ContribNode {
  explicit ContribNode(const std::string& op_type, std::initializer_list<std::string> inputs,
                       std::initializer_list<std::string> outputs = {"y"}, int opset = 17)
      : model(opset), node(model.Node(op_type, inputs, outputs)) {
    auto* import = model.model().add_opset_import();
    import->set_domain("com.microsoft");
    import->set_version(1);
    node.Domain("com.microsoft");
    for (const std::string& name : outputs) {
      if (!name.empty()) model.Output(name);
    }
  }

  StatusOr<Graph> Import() const {
    CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, model.Import());
    return std::move(imported.graph);
  }
  std::vector<Tensor> Run(const std::vector<Tensor>& inputs) const {
    const StatusOr<Graph> graph = Import();
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? testing::Evaluate(*graph, inputs) : std::vector<Tensor>{};
  }

  ModelBuilder model;
  testing::NodeBuilder node;
};

std::vector<float> Values(const Tensor& t) {
  return {t.values<float>().begin(), t.values<float>().end()};
}
// Whether some node refuses these inputs.
bool Fails(const Graph& graph, const std::vector<Tensor>& inputs) {
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
    const auto results = EvaluateNode(node, arguments, weights, team, 0);
    if (!results.ok()) return true;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) values[node.outputs[i]] = (*results)[i];
    }
  }
  return false;
}
template <typename T>
std::vector<int> Integers(const Tensor& t) {
  return {t.values<T>().begin(), t.values<T>().end()};
}

// As in ONNX Runtime, a file may use the domain without importing it.
TEST(ContribDomainTest, NeedsNoImport) {
  for (const char* domain : {"com.microsoft", "ai.onnx.ml"}) {
    ModelBuilder m(17);
    m.Input("x", kFloat, {2}).Output("y");
    if (std::string(domain) == "ai.onnx.ml") {
      m.Node("Binarizer", {"x"}, {"y"}).Domain(domain).Float("threshold", 0.5f);
    } else {
      m.Node("QuickGelu", {"x"}, {"y"}).Domain(domain);
    }
    EXPECT_TRUE(m.Import().ok()) << m.Import().status();
  }
  ModelBuilder other(17);
  other.Input("x", kFloat, {2}).Output("y");
  other.Node("QuickGelu", {"x"}, {"y"}).Domain("com.example");
  EXPECT_THAT(std::string(other.Import().status().message()),
              HasSubstr("imports no opset of domain 'com.example'"));
}

TEST(ContribDomainTest, NeedsNoImportInFunctions) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {2}).Output("y");
  auto* import = m.model().add_opset_import();
  import->set_domain("own");
  import->set_version(1);
  onnx::FunctionProto* f = m.model().add_functions();
  f->set_name("F");
  f->set_domain("own");
  f->add_opset_import()->set_version(17);
  f->add_input("a");
  f->add_output("b");
  onnx::NodeProto* node = f->add_node();
  node->set_op_type("QuickGelu");
  node->set_domain("com.microsoft");
  node->add_input("a");
  node->add_output("b");
  m.Node("F", {"x"}, {"y"}).Domain("own");
  EXPECT_TRUE(m.Import().ok()) << m.Import().status();
}

class ContribTest : public ::testing::Test {
 protected:
  Tensor Random(const Shape& shape, float low = -1, float high = 1) {
    Tensor t = Tensor::Allocate(DType::kFloat, shape);
    std::uniform_real_distribution<float> values(low, high);
    for (float& v : std::span(t.data<float>(), static_cast<size_t>(t.size()))) v = values(random_);
    return t;
  }
  std::mt19937 random_{3};
};

std::string RefusedBecause(const ContribNode& node) {
  const StatusOr<Graph> graph = node.Import();
  EXPECT_FALSE(graph.ok());
  return graph.ok() ? "" : Message(graph.status());
}

TEST_F(ContribTest, UnknownOperatorsAndAttributesAreRefusedByName) {
  ContribNode unknown("Sampling", {"x"});
  unknown.model.Input("x", kFloat, {2});
  EXPECT_THAT(RefusedBecause(unknown), HasSubstr("Sampling"));
  ContribNode attribute("Gelu", {"x"});
  attribute.model.Input("x", kFloat, {2});
  attribute.node.Int("approximate", 1);
  EXPECT_THAT(RefusedBecause(attribute), HasSubstr("'approximate'"));
  ContribNode type("QuickGelu", {"x"});
  type.model.Input("x", kFloat, {2});
  type.node.Int("alpha", 1);
  EXPECT_THAT(RefusedBecause(type), HasSubstr("'alpha' is of another type"));
  ContribNode flag("FusedMatMul", {"x", "x"});
  flag.model.Input("x", kFloat, {2, 2});
  flag.node.Int("transA", 2);
  EXPECT_THAT(RefusedBecause(flag), HasSubstr("'transA' is 2; it must be 0 or 1"));
  ContribNode inputs("BiasGelu", {"x"});
  inputs.model.Input("x", kFloat, {2});
  EXPECT_THAT(RefusedBecause(inputs), HasSubstr("it has 1 inputs"));
  ContribNode outputs("SkipLayerNormalization", {"x", "x", "g"}, {"y", "", "", "", "z"});
  outputs.model.Input("x", kFloat, {2, 2}).Floats("g", {2}, {1, 1});
  EXPECT_THAT(RefusedBecause(outputs), HasSubstr("output 4"));
}

TEST_F(ContribTest, GeluAndItsKin) {
  const Tensor x = Random({3, 5}, -4, 4), bias = Random({5});
  const auto expect = [&](const std::string& op, bool with_bias,
                          const std::function<double(double)>& f) {
    ContribNode m(op, {"x"});
    m.model.Input("x", kFloat, {3, 5});
    std::vector<Tensor> inputs = {x};
    if (with_bias) {
      m.model.proto().mutable_node(0)->add_input("b");
      m.model.Input("b", kFloat, {5});
      inputs.push_back(bias);
    }
    std::vector<float> want;
    for (int64_t i = 0; i < x.size(); ++i) {
      const double b = with_bias ? bias.data<float>()[i % 5] : 0;
      want.push_back(static_cast<float>(f(x.data<float>()[i] + b)));
    }
    EXPECT_THAT(Values(m.Run(inputs)[0]), Pointwise(FloatNear(2e-6f), want)) << op;
  };
  const auto gelu = [](double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2.0))); };
  const auto fast = [](double v) {
    return v / 2 * (1 + std::tanh(0.7978845608 * (v + 0.044715 * v * v * v)));
  };
  expect("Gelu", false, gelu);
  expect("BiasGelu", true, gelu);
  expect("FastGelu", false, fast);
  expect("FastGelu", true, fast);
  expect("QuickGelu", false, [](double v) { return v / (1 + std::exp(-1.702 * v)); });
}

TEST_F(ContribTest, FusedMatMulTransposesAndScales) {
  ContribNode m("FusedMatMul", {"a", "b"});
  m.model.Input("a", kFloat, {2, 1}).Input("b", kFloat, {3, 2});
  m.node.Int("transA", 1).Int("transB", 1).Float("alpha", 0.5f);
  EXPECT_THAT(Values(m.Run({Tensor::Of<float>({2, 1}, {2, 4}),
                            Tensor::Of<float>({3, 2}, {1, 0, 0, 1, 1, 1})})[0]),
              ElementsAre(1, 2, 3));
  // [m, batch, k]
  ContribNode batch("FusedMatMul", {"a", "b"});
  batch.model.Input("a", kFloat, {1, 2, 2}).Input("b", kFloat, {2, 2, 1});
  batch.node.Int("transBatchA", 1);
  EXPECT_THAT(Values(batch.Run({Tensor::Of<float>({1, 2, 2}, {1, 2, 3, 4}),
                                Tensor::Of<float>({2, 2, 1}, {1, 1, 1, 2})})[0]),
              ElementsAre(3, 11));
}

TEST_F(ContribTest, FusedConvAddsAndActivates) {
  ContribNode m("FusedConv", {"x", "w", "b", "z"});
  m.model.Input("x", kFloat, {1, 1, 3}).Input("z", kFloat, {1, 1, 3});
  m.model.Floats("w", {1, 1, 1}, {2}).Floats("b", {1}, {1});
  m.node.String("activation", "LeakyRelu").Floats("activation_params", {0.5f});
  EXPECT_THAT(Values(m.Run({Tensor::Of<float>({1, 1, 3}, {1, -2, 0}),
                            Tensor::Of<float>({1, 1, 3}, {1, 1, -1})})[0]),
              ElementsAre(4, -1, 0));
  ContribNode clip("FusedConv", {"x", "w"});
  clip.model.Input("x", kFloat, {1, 1, 3}).Floats("w", {1, 1, 1}, {2});
  clip.node.String("activation", "Clip").Floats("activation_params", {0, 3});
  EXPECT_THAT(Values(clip.Run({Tensor::Of<float>({1, 1, 3}, {1, -2, 2})})[0]),
              ElementsAre(2, 0, 3));
  ContribNode unknown("FusedConv", {"x", "w"});
  unknown.model.Input("x", kFloat, {1, 1, 3}).Floats("w", {1, 1, 1}, {2});
  unknown.node.String("activation", "Mystery");
  EXPECT_THAT(RefusedBecause(unknown), HasSubstr("'Mystery'"));
}

TEST_F(ContribTest, FusedGemmActivates) {
  ContribNode m("FusedGemm", {"a", "b", "c"});
  m.model.Input("a", kFloat, {1, 2}).Floats("b", {2, 2}, {1, 0, 0, 1}).Floats("c", {2}, {1, -9});
  m.node.String("activation", "LeakyRelu").Float("activation_alpha", 0.5f).Int("transB", 1);
  EXPECT_THAT(Values(m.Run({Tensor::Of<float>({1, 2}, {1, 3})})[0]), ElementsAre(2, -3));
}

// (v − mean) / √(variance + epsilon) of rows of `width`, times `gamma`, plus `beta`.
std::vector<float> LayerNorm(const std::vector<double>& x, size_t width, double epsilon,
                             const Tensor& gamma, const Tensor* beta, bool centred = true) {
  std::vector<float> y;
  for (size_t row = 0; row < x.size(); row += width) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < width; ++i) mean += centred ? x[row + i] / double(width) : 0;
    for (size_t i = 0; i < width; ++i) squares += std::pow(x[row + i] - mean, 2) / double(width);
    for (size_t i = 0; i < width; ++i) {
      const double normal = (x[row + i] - mean) / std::sqrt(squares + epsilon);
      y.push_back(static_cast<float>(normal * gamma.data<float>()[i] +
                                     (beta != nullptr ? beta->data<float>()[i] : 0)));
    }
  }
  return y;
}

TEST_F(ContribTest, SkipLayerNormalizationGivesItsSumToo) {
  const Tensor x = Random({2, 3, 4}), skip = Random({3, 4}), gamma = Random({4}),
               beta = Random({4}), bias = Random({4});
  std::vector<double> sum;
  for (int64_t i = 0; i < 24; ++i) {
    sum.push_back(double(x.data<float>()[i]) + skip.data<float>()[i % 12] +
                  bias.data<float>()[i % 4]);
  }
  for (const bool simplified : {false, true}) {
    ContribNode m = simplified
                        ? ContribNode("SkipSimplifiedLayerNormalization",
                                      {"x", "skip", "gamma", "bias"}, {"y", "", "", "sum"})
                        : ContribNode("SkipLayerNormalization",
                                      {"x", "skip", "gamma", "beta", "bias"}, {"y", "", "", "sum"});
    m.model.Input("x", kFloat, {2, 3, 4}).Input("skip", kFloat, {3, 4});
    for (const char* name : {"gamma", "beta", "bias"}) m.model.Input(name, kFloat, {4});
    m.node.Float("epsilon", 0.1f);
    const auto got = m.Run({x, skip, gamma, beta, bias});
    EXPECT_THAT(Values(got[0]),
                Pointwise(FloatNear(1e-5f), LayerNorm(sum, 4, 0.1, gamma,
                                                      simplified ? nullptr : &beta, !simplified)));
    EXPECT_THAT(Values(got[1]), Pointwise(FloatNear(1e-6f), sum));
  }
}

TEST_F(ContribTest, SimplifiedLayerNormalizationOfDomainOnnx) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {2, 4}).Floats("g", {4}, {1, 2, 3, 4}).Output("y").Output("inverse");
  m.Node("SimplifiedLayerNormalization", {"x", "g"}, {"y", "inverse"}).Float("epsilon", 0.5f);
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Tensor x = Random({2, 4});
  const auto got = testing::Evaluate(model->graph, {x});
  const std::vector<double> values(x.data<float>(), x.data<float>() + 8);
  EXPECT_THAT(Values(got[0]),
              Pointwise(FloatNear(1e-5f),
                        LayerNorm(values, 4, 0.5, Tensor::Of<float>({4}, {1, 2, 3, 4}), nullptr,
                                  /*centred=*/false)));
  EXPECT_EQ(got[1].shape(), (Shape{2, 1}));
}

TEST_F(ContribTest, LayerNormalizationIsTakenInOlderOpsets) {
  ModelBuilder m(11);
  m.Input("x", kFloat, {2, 4}).Floats("g", {4}, {1, 1, 1, 1}).Output("y");
  m.Node("LayerNormalization", {"x", "g"}, {"y"});
  EXPECT_TRUE(m.Import().ok());
}

TEST_F(ContribTest, EmbedLayerNormalizationLooksRowsUp) {
  const Tensor words = Random({7, 4}), places = Random({9, 4}), types = Random({2, 4}),
               gamma = Random({4}), beta = Random({4});
  ContribNode m("EmbedLayerNormalization",
                {"ids", "segments", "words", "places", "types", "gamma", "beta", "mask"},
                {"y", "length", "sum"});
  for (const char* name : {"ids", "segments", "mask"}) m.model.Input(name, kInt32, {"b", "l"});
  m.model.Input("words", kFloat, {7, 4}).Input("places", kFloat, {9, 4});
  m.model.Input("types", kFloat, {2, 4}).Input("gamma", kFloat, {4}).Input("beta", kFloat, {4});
  const std::vector<int32_t> ids = {3, 6, 1, 0, 2, 5}, segments = {0, 1, 0, 1, 1, 0};
  const auto got =
      m.Run({Tensor::Of<int32_t>({2, 3}, ids), Tensor::Of<int32_t>({2, 3}, segments),
             Tensor::Of<int32_t>({2, 3}, {1, 1, 0, 1, 1, 1}), words, places, types, gamma, beta});
  std::vector<double> sum;
  for (size_t i = 0; i < 24; ++i) {
    sum.push_back(double(words.data<float>()[ids[i / 4] * 4 + i % 4]) +
                  places.data<float>()[i / 4 % 3 * 4 + i % 4] +
                  types.data<float>()[segments[i / 4] * 4 + i % 4]);
  }
  EXPECT_THAT(Values(got[0]), Pointwise(FloatNear(1e-5f), LayerNorm(sum, 4, 1e-12, gamma, &beta)));
  EXPECT_THAT(Integers<int32_t>(got[1]), ElementsAre(2, 3));
  EXPECT_THAT(Values(got[2]), Pointwise(FloatNear(1e-6f), sum));
}

// --- ai.onnx.ml ----------------------------------------------------------------------------------

// The node's domain is ai.onnx.ml.
struct MlNode : ContribNode {
  MlNode(const std::string& op_type, std::initializer_list<std::string> inputs,
         std::initializer_list<std::string> outputs = {"y"})
      : ContribNode(op_type, inputs, outputs) {
    model.model().mutable_opset_import(1)->set_domain("ai.onnx.ml");
    node.Domain("ai.onnx.ml");
  }
};

TEST_F(ContribTest, LinearModels) {
  MlNode classifier("LinearClassifier", {"x"}, {"y", "scores"});
  classifier.model.Input("x", kFloat, {"n", 2});
  auto* labels = classifier.node.Attribute("classlabels_ints", onnx::AttributeProto::INTS);
  for (const int label : {7, 9}) labels->add_ints(label);
  classifier.node.Floats("coefficients", {1, 0, 0, 1}).Floats("intercepts", {0, 0.5f});
  const auto got = classifier.Run({Tensor::Of<float>({2, 2}, {1, 0, 1, 1})});
  EXPECT_THAT(Integers<int64_t>(got[0]), ElementsAre(7, 9));
  EXPECT_THAT(Values(got[1]), ElementsAre(1, 0.5f, 1, 1.5f));

  MlNode regressor("LinearRegressor", {"x"});
  regressor.model.Input("x", kInt64, {"n", 2});
  regressor.node.Floats("coefficients", {2, 3}).Floats("intercepts", {1});
  EXPECT_THAT(Values(regressor.Run({Tensor::Of<int64_t>({1, 2}, {1, 2})})[0]), ElementsAre(9));
}

TEST_F(ContribTest, ColumnsAreScaledNormalisedAndFilledIn) {
  const Tensor x = Tensor::Of<float>({2, 2}, {3, 4, 0, 0});
  const auto of = [&](const std::string& op, const std::function<void(MlNode&)>& set) {
    MlNode m(op, {"x"});
    m.model.Input("x", kFloat, {"n", 2});
    set(m);
    return Values(m.Run({x})[0]);
  };
  EXPECT_THAT(of("Scaler",
                 [](MlNode& m) {
                   m.node.Floats("offset", {1, 2}).Floats("scale", {2});
                 }),
              ElementsAre(4, 4, -2, -4));
  EXPECT_THAT(of("Normalizer", [](MlNode& m) { m.node.String("norm", "L2"); }),
              ElementsAre(0.6f, 0.8f, 0, 0));
  EXPECT_THAT(of("Binarizer", [](MlNode& m) { m.node.Float("threshold", 3); }),
              ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(of("Imputer",
                 [](MlNode& m) {
                   m.node.Floats("imputed_value_floats", {5, 6}).Float("replaced_value_float", 0);
                 }),
              ElementsAre(3, 4, 5, 6));
  MlNode picked("ArrayFeatureExtractor", {"x", "i"});
  picked.model.Input("x", kFloat, {"n", 2}).Ints("i", {1});
  EXPECT_THAT(Values(picked.Run({x})[0]), ElementsAre(4, 0));
}

TEST_F(ContribTest, LearnersThatAreNotSupportedAreRefusedByName) {
  MlNode vectors("DictVectorizer", {"x"});
  vectors.model.Input("x", kFloat, {"n", 2});
  EXPECT_THAT(RefusedBecause(vectors), HasSubstr("DictVectorizer"));
  MlNode unlabelled("LinearClassifier", {"x"});
  unlabelled.model.Input("x", kFloat, {"n", 2});
  unlabelled.node.Floats("coefficients", {1, 0, 0, 1});
  EXPECT_THAT(RefusedBecause(unlabelled), HasSubstr("'classlabels_ints'"));
  MlNode columns("Scaler", {"x"});
  columns.model.Input("x", kFloat, {"n", 2});
  columns.node.Floats("offset", {1, 2, 3}).Floats("scale", {1});
  EXPECT_THAT(RefusedBecause(columns), HasSubstr("'offset' has 3 values for an input [n,2]"));
  MlNode few("LinearClassifier", {"x"});
  few.model.Input("x", kFloat, {"n", 2});
  few.node.Ints("classlabels_ints", {0, 1, 2}).Floats("coefficients", {1, 0});
  few.node.Floats("intercepts", {0});
  EXPECT_THAT(RefusedBecause(few), HasSubstr("1 intercepts for 3 labels"));
}

// x[0] ≤ 1 ? 10 : (x[1] ≤ 2 ? 20 : 30), with the given nodes behind the true branches.
MlNode Tree(std::initializer_list<int64_t> on_true, std::initializer_list<int64_t> on_false) {
  MlNode m("TreeEnsembleRegressor", {"x"});
  m.model.Input("x", kFloat, {"n", 2});
  m.node.Ints("nodes_treeids", {0, 0, 0, 0, 0}).Ints("nodes_nodeids", {0, 1, 2, 3, 4});
  m.node.Ints("nodes_truenodeids", on_true).Ints("nodes_falsenodeids", on_false);
  m.node.Ints("nodes_featureids", {0, 0, 1, 0, 0}).Floats("nodes_values", {1, 0, 2, 0, 0});
  auto* modes = m.node.Attribute("nodes_modes", onnx::AttributeProto::STRINGS);
  for (const char* mode : {"BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"}) {
    modes->add_strings(mode);
  }
  m.node.Ints("target_treeids", {0, 0, 0}).Ints("target_nodeids", {1, 3, 4});
  m.node.Ints("target_ids", {0, 0, 0}).Floats("target_weights", {10, 20, 30}).Int("n_targets", 1);
  return m;
}

TEST_F(ContribTest, TreesAreFollowedToTheirLeaves) {
  const MlNode m = Tree({1, 0, 3, 0, 0}, {2, 0, 4, 0, 0});
  EXPECT_THAT(Values(m.Run({Tensor::Of<float>({4, 2}, {1, 9, 2, 2, 2, 3, NAN, NAN})})[0]),
              ElementsAre(10, 20, 30, 30));
}

TEST_F(ContribTest, ScoresOfTreesMayBecomeProbabilities) {
  MlNode m("TreeEnsembleClassifier", {"x"}, {"y", "scores"});
  m.model.Input("x", kFloat, {"n", 1});
  m.node.Ints("nodes_treeids", {0}).Ints("nodes_nodeids", {0}).Ints("nodes_truenodeids", {0});
  m.node.Ints("nodes_falsenodeids", {0}).Ints("nodes_featureids", {0}).Floats("nodes_values", {0});
  m.node.Attribute("nodes_modes", onnx::AttributeProto::STRINGS)->add_strings("LEAF");
  m.node.Ints("class_treeids", {0, 0, 0}).Ints("class_nodeids", {0, 0, 0});
  m.node.Ints("class_ids", {0, 1, 2}).Floats("class_weights", {0, std::log(2.0f), 0});
  m.node.Ints("classlabels_int64s", {5, 6, 7}).String("post_transform", "SOFTMAX");
  EXPECT_THAT(Values(m.Run({Tensor::Of<float>({1, 1}, {1})})[1]),
              Pointwise(FloatNear(1e-6f), {0.25f, 0.5f, 0.25f}));
}

TEST_F(ContribTest, BranchesThatMakeNoTreeAreRefused) {
  EXPECT_THAT(RefusedBecause(Tree({1, 0, 1, 0, 0}, {2, 0, 4, 0, 0})), HasSubstr("make a tree"));
  EXPECT_THAT(RefusedBecause(Tree({1, 0, 9, 0, 0}, {2, 0, 4, 0, 0})), HasSubstr("make a tree"));
  EXPECT_THAT(RefusedBecause(Tree({1, 0, 2, 0, 0}, {3, 0, 4, 0, 0})), HasSubstr("in a circle"));
}

// --- Attention -----------------------------------------------------------------------------------

// softmax(q · kᵀ · scale + added) · v of [batch, tokens, heads·columns]; `added` of (batch, head,
// query, key).
std::vector<float> Attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads,
                          const std::function<double(int64_t, int64_t, int64_t, int64_t)>& added) {
  const int64_t batch = q.shape()[0], queries = q.shape()[1], keys = k.shape()[1];
  const int64_t size = q.shape()[2] / heads, value_size = v.shape()[2] / heads;
  std::vector<float> y(static_cast<size_t>(batch * queries * heads * value_size));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          double score = 0;
          for (int64_t c = 0; c < size; ++c) {
            score += double(q.data<float>()[((b * queries + i) * heads + h) * size + c]) *
                     k.data<float>()[((b * keys + j) * heads + h) * size + c];
          }
          weights.push_back(std::exp(score / std::sqrt(double(size)) + added(b, h, i, j)));
          sum += weights.back();
        }
        for (int64_t c = 0; c < value_size; ++c) {
          double value = 0;
          for (int64_t j = 0; j < keys; ++j) {
            value += weights[static_cast<size_t>(j)] / sum *
                     v.data<float>()[((b * keys + j) * heads + h) * value_size + c];
          }
          y[static_cast<size_t>(((b * queries + i) * heads + h) * value_size + c)] =
              static_cast<float>(value);
        }
      }
    }
  }
  return y;
}

constexpr double kHidden = -1e30;

// Lengths and starts of a batch of 1 are not taken for the lengths of 2.
TEST_F(ContribTest, MasksOfAnotherBatchFailTheRequest) {
  ContribNode m("MultiHeadAttention", {"q", "q", "q", "", "mask"});
  m.model.Input("q", kFloat, {"b", "l", 4}).Input("mask", kInt32, {"n"});
  m.node.Int("num_heads", 2);
  const StatusOr<Graph> graph = m.Import();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(Fails(*graph, {Random({1, 3, 4}), Tensor::Of<int32_t>({2}, {3, 0})}));
}

TEST_F(ContribTest, MultiHeadAttentionUnderEveryMask) {
  const Tensor q = Random({2, 4, 6}), k = Random({2, 4, 6}), v = Random({2, 4, 4});
  const Tensor bias = Random({2, 2, 4, 4});
  const std::vector<int32_t> lengths = {3, 2};
  const std::vector<int32_t> raw = {1, 0, 1, 1, 1, 1, 0, 0};
  std::vector<int32_t> each(32);
  for (int32_t& m : each) m = static_cast<int32_t>(random_() % 4 != 0);
  for (size_t i = 0; i < 32; i += 4) each[i] = 1;
  struct Case {
    std::vector<testing::DeclaredDim> dims;
    Tensor mask;
    std::function<bool(int64_t, int64_t, int64_t)> counts;
  };
  const std::vector<Case> cases = {
      {{}, Tensor(), [](int64_t, int64_t, int64_t) { return true; }},
      {{"b"},
       Tensor::Of<int32_t>({2}, lengths),
       [&](int64_t b, int64_t, int64_t j) { return j < lengths[static_cast<size_t>(b)]; }},
      // Whose batch only a request tells.
      {{"n"},
       Tensor::Of<int32_t>({2}, lengths),
       [&](int64_t b, int64_t, int64_t j) { return j < lengths[static_cast<size_t>(b)]; }},
      {{"b", "l"},
       Tensor::Of<int32_t>({2, 4}, raw),
       [&](int64_t b, int64_t, int64_t j) { return raw[static_cast<size_t>(b * 4 + j)] != 0; }},
      {{"b", "l", "l"}, Tensor::Of<int32_t>({2, 4, 4}, each), [&](int64_t b, int64_t i, int64_t j) {
         return each[static_cast<size_t>((b * 4 + i) * 4 + j)] != 0;
       }}};
  for (const Case& c : cases) {
    for (const bool causal : {false, true}) {
      for (const bool biased : {false, true}) {
        ContribNode m("MultiHeadAttention", {"q", "k", "v", "", "mask", "bias"});
        auto* node = m.model.proto().mutable_node(0);
        m.model.Input("q", kFloat, {"b", "l", 6}).Input("k", kFloat, {"b", "l", 6});
        m.model.Input("v", kFloat, {"b", "l", 4});
        std::vector<Tensor> inputs = {q, k, v};
        if (c.mask.present()) {
          m.model.Input("mask", kInt32, c.dims);
          inputs.push_back(c.mask);
        } else {
          node->set_input(4, "");
        }
        if (biased) {
          m.model.Input("bias", kFloat, {"b", 2, "l", "l"});
          inputs.push_back(bias);
        } else {
          node->set_input(5, "");
        }
        m.node.Int("num_heads", 2).Float("mask_filter_value", -1e30f);
        m.node.Int("unidirectional", causal ? 1 : 0);
        const auto want = Attend(q, k, v, 2, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
          return (c.counts(b, i, j) && !(causal && j > i) ? 0.0 : kHidden) +
                 (biased ? bias.data<float>()[((b * 2 + h) * 4 + i) * 4 + j] : 0.0);
        });
        EXPECT_THAT(Values(m.Run(inputs)[0]), Pointwise(FloatNear(1e-5f), want))
            << c.dims.size() << causal << biased;
      }
    }
  }
}

// More keys than queries without a past: the last query belongs to the last key.
TEST_F(ContribTest, CausalQueriesBelongToTheLastKeys) {
  for (const int64_t queries : {int64_t{1}, int64_t{2}}) {
    const Tensor q = Random({2, queries, 4}), k = Random({2, 5, 4}), v = Random({2, 5, 4});
    ContribNode m("MultiHeadAttention", {"q", "k", "v"});
    m.model.Input("q", kFloat, {"b", "l", 4}).Input("k", kFloat, {"b", "t", 4});
    m.model.Input("v", kFloat, {"b", "t", 4});
    m.node.Int("num_heads", 2).Int("unidirectional", 1);
    const auto want = Attend(q, k, v, 2, [&](int64_t, int64_t, int64_t i, int64_t j) {
      return j > i + 5 - queries ? kHidden : 0.0;
    });
    EXPECT_THAT(Values(m.Run({q, k, v})[0]), Pointwise(FloatNear(1e-5f), want)) << queries;
  }
}

TEST_F(ContribTest, RotationsOfOtherColumnsThanTheTablesAreRefused) {
  ContribNode m("RotaryEmbedding", {"x", "at", "cos", "sin"});
  m.model.Input("x", kFloat, {"b", "l", 16}).Input("at", kInt64, {"b", "l"});
  m.model.Input("cos", kFloat, {9, 2}).Input("sin", kFloat, {9, 2});
  m.node.Int("num_heads", 2).Int("rotary_embedding_dim", 5);
  const StatusOr<Graph> graph = m.Import();
  EXPECT_THAT(Message(graph.status()), HasSubstr("'rotary_embedding_dim' is 5"));
}

TEST_F(ContribTest, AttentionProjectsAndJoinsThePast) {
  const Tensor x = Random({2, 3, 5}), w = Random({5, 12}), bias = Random({12});
  const Tensor past = Random({2, 2, 2, 1, 2});  // keys and values of 2 heads, 1 token each
  ContribNode m("Attention", {"x", "w", "bias", "", "past"}, {"y", "present"});
  m.model.Input("x", kFloat, {"b", "l", 5}).Input("w", kFloat, {5, 12});
  m.model.Input("bias", kFloat, {12}).Input("past", kFloat, {2, "b", 2, "p", 2});
  m.node.Int("num_heads", 2).Int("unidirectional", 1);
  const auto got = m.Run({x, w, bias, past});
  std::vector<Tensor> parts;
  for (int64_t part = 0; part < 3; ++part) {
    const int64_t tokens = part == 0 ? 3 : 4;
    Tensor t = Tensor::Allocate(DType::kFloat, Shape{2, tokens, 4});
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t l = 0; l < tokens; ++l) {
        for (int64_t c = 0; c < 4; ++c) {
          double value = 0;
          if (const int64_t own = l - (part == 0 ? 0 : 1); own < 0) {
            value = past.data<float>()[(((part - 1) * 2 + b) * 2 + c / 2) * 2 + c % 2];
          } else {
            value = bias.data<float>()[part * 4 + c];
            for (int64_t i = 0; i < 5; ++i) {
              value += double(x.data<float>()[(b * 3 + own) * 5 + i]) *
                       w.data<float>()[i * 12 + part * 4 + c];
            }
          }
          t.data<float>()[(b * tokens + l) * 4 + c] = static_cast<float>(value);
        }
      }
    }
    parts.push_back(t);
  }
  const auto want =
      Attend(parts[0], parts[1], parts[2], 2,
             [](int64_t, int64_t, int64_t i, int64_t j) { return j > i + 1 ? kHidden : 0.0; });
  EXPECT_THAT(Values(got[0]), Pointwise(FloatNear(1e-5f), want));
  EXPECT_EQ(got[1].shape(), (Shape{2, 2, 2, 4, 2}));
}

TEST_F(ContribTest, AttentionFusesAsTheOneWrittenOut) {
  ContribNode m("Attention", {"x", "w", "bias", "mask"});
  m.model.Input("x", kFloat, {"b", "l", 8}).Input("mask", kInt32, {"b", "l"});
  auto* w = m.model.Tensor("w", kFloat, {8, 24});
  for (int i = 0; i < 8 * 24; ++i) w->add_float_data(0.01f * static_cast<float>(i % 7));
  auto* bias = m.model.Tensor("bias", kFloat, {24});
  for (int i = 0; i < 24; ++i) bias->add_float_data(0.1f);
  m.node.Int("num_heads", 2);
  StatusOr<Graph> graph = m.Import();
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(RunPasses(*graph, {}).ok());
  std::multiset<std::string> operators;
  for (const Node& node : graph->nodes) operators.insert(node.def->name);
  EXPECT_EQ(operators.count("Attention"), 1u);
  EXPECT_EQ(operators.count("ParallelMatMul"), 1u);
  EXPECT_EQ(operators.count("Softmax") + operators.count("MatMul"), 0u);
}

TEST_F(ContribTest, AttentionFormsThatAreNotSupportedAreRefusedByName) {
  const auto refused = [&](const std::function<void(ContribNode&)>& change) {
    ContribNode m("Attention", {"x", "w", "", "mask"});
    m.model.Input("x", kFloat, {2, "l", 8}).Input("w", kFloat, {8, 24});
    m.model.Input("mask", kInt32, {4});
    change(m);
    return RefusedBecause(m);
  };
  EXPECT_THAT(refused([](ContribNode& m) { m.node.Int("num_heads", 2); }),
              HasSubstr("a mask [4] is not supported"));
  EXPECT_THAT(refused([](ContribNode& m) { m.node.Int("num_heads", 3).Int("do_rotary", 1); }),
              HasSubstr("'do_rotary'"));
  EXPECT_THAT(refused([](ContribNode& m) { m.node.Int("num_heads", 3); }),
              HasSubstr("not divisible by 3 heads"));
  EXPECT_THAT(refused([](ContribNode&) {}), HasSubstr("'num_heads'"));
}

// --- Quantised -----------------------------------------------------------------------------------

TEST_F(ContribTest, QLinearOperatorsRoundTheirResults) {
  const auto binary = [](const std::string& op) {
    ContribNode m(op, {"a", "as", "az", "b", "bs", "", "cs", "cz"});
    m.model.Input("a", kUInt8, {3}).Input("b", kUInt8, {3});
    m.model.Floats("as", {}, {0.5f}).Floats("bs", {1}, {0.25f}).Floats("cs", {}, {0.5f});
    m.model.Tensor("az", kUInt8, {})->add_int32_data(2);
    m.model.Tensor("cz", kUInt8, {})->add_int32_data(10);
    return Integers<uint8_t>(
        m.Run({Tensor::Of<uint8_t>({3}, {2, 4, 255}), Tensor::Of<uint8_t>({3}, {0, 8, 255})})[0]);
  };
  EXPECT_THAT(binary("QLinearAdd"), ElementsAre(10, 16, 255));
  EXPECT_THAT(binary("QLinearMul"), ElementsAre(10, 14, 255));
  const auto unary = [](const std::string& op, const std::function<void(ContribNode&)>& set) {
    ContribNode m(op, {"x", "xs", "xz", "ys", "yz"});
    m.model.Input("x", kInt8, {1, 1, 4});
    m.model.Floats("xs", {}, {0.5f}).Floats("ys", {}, {0.25f});
    m.model.Tensor("xz", kInt8, {})->add_int32_data(0);
    m.model.Tensor("yz", kInt8, {})->add_int32_data(-1);
    set(m);
    return Integers<int8_t>(m.Run({Tensor::Of<int8_t>({1, 1, 4}, {-8, -2, 0, 6})})[0]);
  };
  const auto nothing = [](ContribNode&) {};
  EXPECT_THAT(unary("QLinearLeakyRelu", [](ContribNode& m) { m.node.Float("alpha", 0.25f); }),
              ElementsAre(-5, -2, -1, 11));
  EXPECT_THAT(unary("QLinearSigmoid", nothing), ElementsAre(-1, 0, 1, 3));
  EXPECT_THAT(unary("QLinearGlobalAveragePool", nothing), ElementsAre(-3));
  EXPECT_THAT(unary("QLinearAveragePool",
                    [](ContribNode& m) { m.node.Ints("kernel_shape", {2}).Ints("strides", {2}); }),
              ElementsAre(-11, 5));
}

// Channels last: the same numbers as channels first, in another order.
TEST_F(ContribTest, QLinearOperatorsTakeChannelsLast) {
  constexpr int64_t kChannels = 3, kSize = 4;
  const auto input = [](bool last) {
    Tensor x = Tensor::Allocate(DType::kUInt8, last ? Shape{2, kSize, kSize, kChannels}
                                                    : Shape{2, kChannels, kSize, kSize});
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t c = 0; c < kChannels; ++c) {
        for (int64_t i = 0; i < kSize * kSize; ++i) {
          const int64_t to = last ? (n * kSize * kSize + i) * kChannels + c
                                  : (n * kChannels + c) * kSize * kSize + i;
          x.data<uint8_t>()[to] = static_cast<uint8_t>((n * 71 + c * 13 + i * i * 7) % 256);
        }
      }
    }
    return x;
  };
  const auto run = [&](const std::string& op, bool last,
                       const std::function<void(ContribNode&)>& set) {
    const bool conv = op == "QLinearConv", plain = op == "NhwcMaxPool";
    ContribNode m = conv    ? ContribNode(op, {"x", "xs", "xz", "w", "ws", "wz", "ys", "yz"})
                    : plain ? ContribNode(op, {"x"})
                            : ContribNode(op, {"x", "xs", "xz", "ys", "yz"});
    if (plain && !last) m.node.Domain("").Name("pool");
    m.model.Input("x", kUInt8,
                  last ? std::vector<testing::DeclaredDim>{"n", 4, 4, 3}
                       : std::vector<testing::DeclaredDim>{"n", 3, 4, 4});
    m.model.Floats("xs", {}, {0.5f}).Floats("ys", {}, {4.0f}).Floats("ws", {}, {0.25f});
    for (const char* zero : {"xz", "yz"}) m.model.Tensor(zero, kUInt8, {})->add_int32_data(9);
    m.model.Tensor("wz", kInt8, {})->add_int32_data(0);
    auto* w = m.model.Tensor("w", kInt8, {2, kChannels, 3, 3});
    for (int i = 0; i < 2 * kChannels * 9; ++i) w->add_int32_data(i * 5 % 23 - 11);
    set(m);
    if (last && !plain) m.node.Int("channels_last", 1);
    if (plain && !last) m.model.proto().mutable_node(0)->set_op_type("MaxPool");
    return m.Run({input(last)})[0];
  };
  struct Case {
    const char* op;
    std::function<void(ContribNode&)> set;
  };
  for (const Case& c : {Case{"QLinearConv",
                             [](ContribNode& m) {
                               m.node.Ints("pads", {1, 1, 1, 1});
                             }},
                        Case{"QLinearGlobalAveragePool", [](ContribNode&) {}},
                        Case{"QLinearAveragePool",
                             [](ContribNode& m) {
                               m.node.Ints("kernel_shape", {2, 2});
                             }},
                        Case{"NhwcMaxPool", [](ContribNode& m) {
                               m.node.Ints("kernel_shape", {2, 2});
                             }}}) {
    const Tensor first = run(c.op, false, c.set), last = run(c.op, true, c.set);
    ASSERT_EQ(first.shape().rank(), 4) << c.op;
    const int64_t channels = first.shape()[1], size = first.shape().NumElements(2, 4);
    ASSERT_EQ(last.shape()[3], channels) << c.op;
    ASSERT_EQ(last.size(), first.size()) << c.op;
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        for (int64_t i = 0; i < size; ++i) {
          EXPECT_EQ(last.data<uint8_t>()[(n * size + i) * channels + channel],
                    first.data<uint8_t>()[(n * channels + channel) * size + i])
              << c.op;
        }
      }
    }
  }
}

// Group normalisation in float64 of x [items, plane, channels], whose channels come last.
std::vector<double> GroupNormReference(const std::vector<float>& x, int items, int plane,
                                       int channels, int groups, const std::vector<float>& gamma,
                                       const std::vector<float>& beta, double epsilon, bool silu) {
  std::vector<double> y(x.size());
  const int wide = channels / groups;
  for (int unit = 0; unit < items * groups; ++unit) {
    const auto at = [&](int i) {  // element i of the group
      return (unit / groups * plane + i / wide) * channels + unit % groups * wide + i % wide;
    };
    double mean = 0, variance = 0;
    const int n = plane * wide;
    for (int i = 0; i < n; ++i) mean += x[static_cast<size_t>(at(i))] / static_cast<double>(n);
    for (int i = 0; i < n; ++i) {
      const double d = x[static_cast<size_t>(at(i))] - mean;
      variance += d * d / n;
    }
    for (int i = 0; i < n; ++i) {
      const auto to = static_cast<size_t>(at(i)), channel = to % static_cast<size_t>(channels);
      const double v =
          (x[to] - mean) / std::sqrt(variance + epsilon) * gamma[channel] + beta[channel];
      y[to] = silu ? v / (1 + std::exp(-v)) : v;
    }
  }
  return y;
}

// [items, plane, channels] to [items, channels, plane], or back.
template <typename T>
std::vector<T> SwapAxes(const std::vector<T>& x, int items, int rows, int columns) {
  std::vector<T> y(x.size());
  for (int n = 0; n < items; ++n) {
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        y[static_cast<size_t>((n * columns + c) * rows + r)] =
            x[static_cast<size_t>((n * rows + r) * columns + c)];
      }
    }
  }
  return y;
}

std::vector<float> SeededFloats(int n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(random);
  return values;
}

void AddFloats(ContribNode& m, const std::string& name, std::initializer_list<int64_t> dims,
               const std::vector<float>& values) {
  auto* tensor = m.model.Tensor(name, kFloat, dims);
  for (const float v : values) tensor->add_float_data(v);
}

// x [2, 3, 5, 8] and its sums, channels last.
struct GroupNormCase {
  static constexpr int kItems = 2, kPlane = 15, kChannels = 8;
  bool last = true;
  int64_t activation = 0;
  std::vector<float> x = SeededFloats(kItems * kPlane * kChannels, 1);
  std::vector<float> gamma = SeededFloats(kChannels, 2), beta = SeededFloats(kChannels, 3);

  testing::NodeBuilder& Set(ContribNode& m) const {
    const auto dims = last ? std::vector<testing::DeclaredDim>{"n", 3, 5, 8}
                           : std::vector<testing::DeclaredDim>{"n", 8, 3, 5};
    m.model.Input("x", kFloat, dims);
    AddFloats(m, "g", {8}, gamma);
    AddFloats(m, "b", {8}, beta);
    if (!last) m.node.Int("channels_last", 0);
    return m.node.Int("groups", 4).Int("activation", activation).Float("epsilon", 1e-3f);
  }
  Tensor Laid(const std::vector<float>& values) const {
    return last ? Tensor::Of<float>({2, 3, 5, 8}, values)
                : Tensor::Of<float>({2, 8, 3, 5}, SwapAxes(values, kItems, kPlane, kChannels));
  }
  void Check(const Tensor& y, const std::vector<float>& sum) const {
    std::vector<double> wanted = GroupNormReference(sum, kItems, kPlane, kChannels, 4, gamma, beta,
                                                    double{1e-3f}, activation == 1);
    if (!last) wanted = SwapAxes(wanted, kItems, kPlane, kChannels);
    EXPECT_EQ(y.shape(), Laid(sum).shape());
    EXPECT_THAT(Values(y), Pointwise(::testing::DoubleNear(1e-5), wanted));
  }
};

TEST_F(ContribTest, GroupNormInBothLayoutsWithSilu) {
  for (const bool last : {true, false}) {
    for (const int64_t activation : {0, 1}) {
      const GroupNormCase c{.last = last, .activation = activation};
      ContribNode m("GroupNorm", {"x", "g", "b"});
      c.Set(m);
      c.Check(m.Run({c.Laid(c.x)})[0], c.x);
    }
  }
}

TEST_F(ContribTest, GroupNormOfHalvesIsComputedInFloat32) {
  ContribNode m("GroupNorm", {"x", "g", "b"});
  m.model.Input("x", onnx::TensorProto::FLOAT16, {1, 2, 1, 2});
  m.model.Floats("g", {2}, {1, 1}).Floats("b", {2}, {0, 100});
  m.node.Int("groups", 1).Int("activation", 0).Float("epsilon", 0);
  Tensor x = Tensor::Allocate(DType::kFloat16, {1, 2, 1, 2});
  // The squares of these overflow float16.
  for (const int i : {0, 1, 2, 3}) x.data<Float16>()[i] = Float16(i % 2 == 0 ? 60000.0f : 0.0f);
  const Tensor y = m.Run({x})[0];
  ASSERT_EQ(y.dtype(), DType::kFloat16);
  std::vector<float> values;
  for (const int i : {0, 1, 2, 3}) values.push_back(static_cast<float>(y.data<Float16>()[i]));
  EXPECT_THAT(values, ElementsAre(1, 99, 1, 99));
}

TEST_F(ContribTest, SkipGroupNormAddsFirst) {
  for (const bool last : {true, false}) {
    for (const int skip_rank : {0, 2, 4}) {  // 0: of the input's shape
      const GroupNormCase c{.last = last, .activation = 1};
      ContribNode m("SkipGroupNorm", {"x", "g", "b", "skip", "bias"}, {"y", "sum"});
      c.Set(m);
      const std::vector<float> bias = SeededFloats(8, 4);
      const std::vector<float> skip = SeededFloats(skip_rank == 0 ? 240 : 16, 5);
      AddFloats(m, "bias", {8}, bias);
      if (skip_rank == 0) {
        m.model.Input("skip", kFloat,
                      last ? std::vector<testing::DeclaredDim>{"n", 3, 5, 8}
                           : std::vector<testing::DeclaredDim>{"n", 8, 3, 5});
      } else if (skip_rank == 2) {
        m.model.Input("skip", kFloat, {"n", 8});
      } else {
        m.model.Input("skip", kFloat,
                      last ? std::vector<testing::DeclaredDim>{"n", 1, 1, 8}
                           : std::vector<testing::DeclaredDim>{"n", 8, 1, 1});
      }
      std::vector<float> sum = c.x;
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += bias[i % 8] + (skip_rank == 0 ? skip[i] : skip[i / 120 * 8 + i % 8]);
      }
      const Tensor given = skip_rank == 0   ? c.Laid(skip)
                           : skip_rank == 2 ? Tensor::Of<float>({2, 8}, skip)
                           : last           ? Tensor::Of<float>({2, 1, 1, 8}, skip)
                                            : Tensor::Of<float>({2, 8, 1, 1}, skip);
      const std::vector<Tensor> results = m.Run({c.Laid(c.x), given});
      c.Check(results[0], sum);
      EXPECT_THAT(Values(results[1]), Pointwise(FloatNear(1e-5f), Values(c.Laid(sum))));
    }
  }
}

TEST_F(ContribTest, GroupNormRefusesWhatItHasNot) {
  const auto refused = [](int64_t groups, int64_t activation, testing::DeclaredDim channels) {
    ContribNode m("GroupNorm", {"x", "g", "b"});
    m.model.Input("x", kFloat, {1, 2, 2, std::move(channels)});
    AddFloats(m, "g", {6}, SeededFloats(6, 1));
    AddFloats(m, "b", {6}, SeededFloats(6, 2));
    m.node.Int("groups", groups).Int("activation", activation);
    return RefusedBecause(m);
  };
  EXPECT_THAT(refused(4, 0, 6), HasSubstr("6 channels do not make 4 groups"));
  EXPECT_THAT(refused(0, 0, 6), HasSubstr("num_groups is 0"));
  EXPECT_THAT(refused(3, 2, 6), HasSubstr("'activation' is 2"));
  EXPECT_THAT(refused(3, 0, 5), HasSubstr("6"));
}

TEST_F(ContribTest, ConvolutionsWithChannelsLastEqualConv) {
  constexpr int kPlane = 12, kIn = 4, kOut = 6, kTaps = 6;  // [3, 4], kernel [3, 2]
  const std::vector<float> x = SeededFloats(2 * kPlane * kIn, 1);
  const std::vector<float> w = SeededFloats(kOut * kTaps * kIn / 2, 2);  // two groups
  const std::vector<float> z = SeededFloats(2 * kPlane * kOut, 3), b = SeededFloats(kOut, 4);
  const auto set = [](ContribNode& m) {
    m.node.Int("group", 2).Ints("pads", {1, 0, 1, 1}).Ints("kernel_shape", {3, 2});
  };
  ContribNode plain("FusedConv", {"x", "w", "b", "z"});
  plain.model.Input("x", kFloat, {2, 4, 3, 4}).Input("z", kFloat, {2, 6, 3, 4});
  AddFloats(plain, "w", {6, 2, 3, 2}, w);
  AddFloats(plain, "b", {6}, b);
  set(plain);
  plain.node.String("activation", "Relu");
  const auto first = [&](const std::vector<float>& values, int channels) {
    return Tensor::Of<float>({2, channels, 3, 4}, SwapAxes(values, 2, kPlane, channels));
  };
  const Tensor wanted = plain.Run({first(x, kIn), first(z, kOut)})[0];

  ContribNode fused("NhwcFusedConv", {"x", "w", "b", "z"});
  fused.model.Input("x", kFloat, {2, 3, 4, 4}).Input("z", kFloat, {2, 3, 4, 6});
  AddFloats(fused, "w", {6, 2, 3, 2}, w);
  AddFloats(fused, "b", {6}, b);
  set(fused);
  fused.node.String("activation", "Relu");
  const Tensor y =
      fused.Run({Tensor::Of<float>({2, 3, 4, 4}, x), Tensor::Of<float>({2, 3, 4, 6}, z)})[0];
  EXPECT_EQ(y.shape(), (Shape{2, 3, 4, 6}));
  EXPECT_EQ(SwapAxes(Values(y), 2, kPlane, kOut), Values(wanted));

  // The weights of NhwcConv have channels last, too.
  ContribNode conv("FusedConv", {"x", "w", "b"}), last("NhwcConv", {"x", "w", "b"});
  conv.model.Input("x", kFloat, {2, 4, 3, 4});
  AddFloats(conv, "w", {6, 2, 3, 2}, w);
  AddFloats(conv, "b", {6}, b);
  last.model.Input("x", kFloat, {2, 3, 4, 4});
  AddFloats(last, "b", {6}, b);
  AddFloats(last, "w", {6, 3, 2, 2}, SwapAxes(w, kOut, kIn / 2, kTaps));
  set(conv);
  set(last);
  EXPECT_EQ(SwapAxes(Values(last.Run({Tensor::Of<float>({2, 3, 4, 4}, x)})[0]), 2, kPlane, kOut),
            Values(conv.Run({first(x, kIn)})[0]));
}

TEST_F(ContribTest, BiasAddAndBiasSplitGelu) {
  ContribNode add("BiasAdd", {"x", "b", "skip"});
  add.model.Input("x", kFloat, {1, 2, 2}).Input("skip", kFloat, {1, 2, 2});
  add.model.Floats("b", {2}, {10, 20});
  EXPECT_THAT(Values(add.Run({Tensor::Of<float>({1, 2, 2}, {1, 2, 3, 4}),
                              Tensor::Of<float>({1, 2, 2}, {100, 200, 300, 400})})[0]),
              ElementsAre(111, 222, 313, 424));
  ContribNode split("BiasSplitGelu", {"x", "b"});
  split.model.Input("x", kFloat, {1, 1, 4}).Floats("b", {4}, {1, 2, 3, 4});
  const auto gelu = [](double v) { return v * (1 + std::erf(v / std::sqrt(2.0))) / 2; };
  EXPECT_THAT(Values(split.Run({Tensor::Of<float>({1, 1, 4}, {1, 1, -2, -5})})[0]),
              ElementsAre(::testing::FloatEq(static_cast<float>(2 * gelu(1))),
                          ::testing::FloatEq(static_cast<float>(3 * gelu(-1)))));
}

// Two experts of one number; each token takes the one of its larger logit.
TEST_F(ContribTest, MixturesOfExpertsRouteEachToken) {
  const auto set = [](ContribNode& m) {
    m.model.Input("x", kFloat, {"batch", "length", 1}).Input("r", kFloat, {"rows", 2});
    m.node.Int("k", 1).Int("normalize_routing_weights", 1).String("activation_type", "relu");
  };
  const Tensor x = Tensor::Of<float>({1, 3, 1}, {1, 2, -3});
  const Tensor r = Tensor::Of<float>({3, 2}, {5, 0, 0, 5, 5, 0});
  ContribNode plain("MoE", {"x", "r", "w1", "", "w2", "b2"});
  set(plain);
  plain.model.Floats("w1", {2, 1, 1}, {1, 10}).Floats("w2", {2, 1, 1}, {1, -1});
  plain.model.Floats("b2", {2, 1}, {0.5f, 0});
  const Tensor y = plain.Run({x, r})[0];
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_THAT(Values(y), ElementsAre(1.5f, -20, 0.5f));

  ContribNode quantized("QMoE", {"x", "r", "w1", "s1", "", "w2", "s2"});
  set(quantized);
  quantized.node.Int("expert_weight_bits", 8);
  for (const char* w : {"w1", "w2"}) {
    auto* codes = quantized.model.Tensor(w, kUInt8, {2, 1, 1});
    for (const int code : {129, 130}) codes->add_int32_data(code);
  }
  quantized.model.Floats("s1", {2, 1}, {1, 5}).Floats("s2", {2, 1}, {1, -0.5f});
  EXPECT_THAT(Values(quantized.Run({x, r})[0]), ElementsAre(1, -20, 0));
  quantized.node.String("quant_type", "fp4");
  EXPECT_THAT(RefusedBecause(quantized), HasSubstr("quant_type 'fp4'"));
}

TEST_F(ContribTest, QLinearReduceMeanAndWhere) {
  ContribNode mean("QLinearReduceMean", {"x", "xs", "xz", "ys", "yz"});
  mean.model.Input("x", kUInt8, {2, 4});
  mean.model.Floats("xs", {}, {0.5f}).Floats("ys", {}, {0.25f});
  mean.model.Tensor("xz", kUInt8, {})->add_int32_data(10);
  mean.model.Tensor("yz", kUInt8, {})->add_int32_data(3);
  mean.node.Ints("axes", {1}).Int("keepdims", 0);
  // (mean - 10) / 2 * 4 + 3
  EXPECT_THAT(Integers<uint8_t>(
                  mean.Run({Tensor::Of<uint8_t>({2, 4}, {10, 12, 14, 16, 20, 20, 20, 20})})[0]),
              ElementsAre(9, 23));

  ContribNode where("QLinearWhere", {"c", "x", "xs", "xz", "y", "ys", "yz", "zs", "zz"}, {"z"});
  where.model.Input("c", testing::kBool, {3}).Input("x", kUInt8, {3}).Input("y", kUInt8, {3});
  where.model.Floats("xs", {}, {1.0f}).Floats("ys", {}, {2.0f}).Floats("zs", {}, {0.5f});
  where.model.Tensor("xz", kUInt8, {})->add_int32_data(1);
  where.model.Tensor("yz", kUInt8, {})->add_int32_data(2);
  where.model.Tensor("zz", kUInt8, {})->add_int32_data(3);
  Tensor c = Tensor::Allocate(DType::kBool, {3});
  c.data<bool>()[0] = c.data<bool>()[2] = true;
  c.data<bool>()[1] = false;
  // 2 (x - 1) + 3, or 4 (y - 2) + 3
  EXPECT_THAT(Integers<uint8_t>(where.Run({c, Tensor::Of<uint8_t>({3}, {5, 6, 200}),
                                           Tensor::Of<uint8_t>({3}, {5, 7, 8})})[0]),
              ElementsAre(11, 23, 255));
}

TEST_F(ContribTest, BlockedLayoutsAreRefusedWithWhatToDo) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {1, 8, 4, 4}).Output("y");
  auto* import = m.model().add_opset_import();
  import->set_domain("com.microsoft.nchwc");
  import->set_version(1);
  m.Node("ReorderInput", {"x"}, {"y"}).Domain("com.microsoft.nchwc");
  EXPECT_THAT(std::string(m.Import().status().message()), HasSubstr("ORT_ENABLE_EXTENDED"));
}

// The scales are those of masks: what an integer stands for is no float any more.
TEST_F(ContribTest, QLinearOperatorsOutliveScalesThatOverflow) {
  const auto of = [](const std::string& op, float x_scale, float y_scale, int y_zero,
                     const std::function<void(ContribNode&)>& set, std::vector<int8_t> x) {
    ContribNode m(op, {"x", "xs", "xz", "ys", "yz"});
    m.model.Input("x", kInt8, {1, 1, 4});
    m.model.Floats("xs", {}, {x_scale}).Floats("ys", {}, {y_scale});
    m.model.Tensor("xz", kInt8, {})->add_int32_data(0);
    m.model.Tensor("yz", kInt8, {})->add_int32_data(y_zero);
    set(m);
    return Integers<int8_t>(m.Run({Tensor::Of<int8_t>({1, 1, 4}, std::move(x))})[0]);
  };
  const auto nothing = [](ContribNode&) {};
  EXPECT_THAT(of("QLinearLeakyRelu", 3e38f, 3e38f, 0,
                 [](ContribNode& m) { m.node.Float("alpha", 0.0f); }, {-128, 0, 2, 127}),
              ElementsAre(0, 0, 2, 127));
  EXPECT_THAT(of("QLinearGlobalAveragePool", 3e38f, 1e38f, 1, nothing, {-128, 127, -127, -128}),
              ElementsAre(-128));
  EXPECT_THAT(of("QLinearGlobalAveragePool", 3e38f, 1e38f, 1, nothing, {100, -100, 100, -92}),
              ElementsAre(7));
  EXPECT_THAT(of("QLinearAveragePool", 3e38f, 3e38f, 0,
                 [](ContribNode& m) { m.node.Ints("kernel_shape", {2}).Ints("strides", {2}); },
                 {127, -127, 8, 4}),
              ElementsAre(0, 6));
  // Scores and a mask as dynamic ranges have them, and beyond.
  const auto softmax = [](ContribNode& m) { m.node.Int("opset", 13).Int("axis", -1); };
  for (const float scale : {2.68e36f, 3e38f}) {
    EXPECT_THAT(of("QLinearSoftmax", scale, 1.0f / 256, -128, softmax, {-128, 0, -127, 0}),
                ElementsAre(-128, 0, -128, 0));
    EXPECT_THAT(of("QLinearSoftmax", scale, 1.0f / 256, -128, softmax, {127, 127, 127, 127}),
                ElementsAre(-64, -64, -64, -64));
  }
  ContribNode concat("QLinearConcat", {"s", "z", "a", "as", "az", "b", "bs", "bz"});
  concat.model.Input("a", kUInt8, {2}).Input("b", kUInt8, {2});
  concat.model.Floats("s", {}, {3e38f}).Floats("as", {}, {3e38f}).Floats("bs", {}, {1e38f});
  for (const char* name : {"z", "az", "bz"}) {
    concat.model.Tensor(name, kUInt8, {})->add_int32_data(0);
  }
  concat.node.Int("axis", 0);
  EXPECT_THAT(Integers<uint8_t>(concat.Run(
                  {Tensor::Of<uint8_t>({2}, {2, 255}), Tensor::Of<uint8_t>({2}, {6, 255})})[0]),
              ElementsAre(2, 255, 2, 85));
}

// quantize_static() writes (1 − mask) · finfo.min so. Padding must not be attended to.
TEST_F(ContribTest, QuantisedMasksHideWhatTheyShould) {
  ContribNode m("QLinearMul", {"a", "as", "az", "b", "bs", "bz", "cs", "cz"});
  m.model.Input("a", kInt8, {"n"});
  m.model.Floats("as", {}, {1}).Floats("bs", {}, {2.6793887e36f}).Floats("cs", {}, {1});
  m.model.Tensor("b", kInt8, {})->add_int32_data(-127);
  for (const char* name : {"az", "bz", "cz"}) m.model.Tensor(name, kInt8, {})->add_int32_data(0);
  EXPECT_THAT(Integers<int8_t>(m.Run({Tensor::Of<int8_t>({4}, {0, 1, 0, 1})})[0]),
              ElementsAre(0, -128, 0, -128));
}

TEST_F(ContribTest, QLinearConcatBringsPartsToOneScale) {
  ContribNode m("QLinearConcat", {"s", "z", "a", "as", "az", "b", "bs", "bz"});
  m.model.Input("a", kUInt8, {"n"}).Input("b", kUInt8, {"n"});
  m.model.Floats("s", {}, {1}).Floats("as", {}, {2}).Floats("bs", {}, {0.5f});
  for (const char* name : {"z", "az", "bz"}) m.model.Tensor(name, kUInt8, {})->add_int32_data(1);
  m.node.Int("axis", 0);
  EXPECT_THAT(Integers<uint8_t>(
                  m.Run({Tensor::Of<uint8_t>({2}, {1, 3}), Tensor::Of<uint8_t>({2}, {5, 9})})[0]),
              ElementsAre(1, 5, 3, 5));
}

TEST_F(ContribTest, ProductsOfIntegersAreExact) {
  ContribNode m("MatMulIntegerToFloat", {"a", "b", "as", "bs", "az", "bz", "bias"});
  m.model.Input("a", kUInt8, {1, 2}).Floats("as", {}, {0.5f}).Floats("bs", {2}, {1, 2});
  auto* b = m.model.Tensor("b", kUInt8, {2, 2});
  for (const int v : {1, 2, 3, 4}) b->add_int32_data(v);
  m.model.Tensor("az", kUInt8, {})->add_int32_data(1);
  auto* bz = m.model.Tensor("bz", kUInt8, {2});
  for (const int v : {1, 2}) bz->add_int32_data(v);
  m.model.Floats("bias", {2}, {100, 200});
  // (a − 1) · (b − [1, 2]) = [4, 5] · [[0, 0], [2, 2]] = [10, 10]
  EXPECT_THAT(Values(m.Run({Tensor::Of<uint8_t>({1, 2}, {5, 6})})[0]), ElementsAre(105, 210));

  ContribNode gemm("QGemm", {"a", "as", "az", "b", "bs", "bz", "c", "ys", "yz"});
  gemm.model.Input("a", kUInt8, {1, 2}).Floats("as", {}, {0.5f}).Floats("bs", {}, {1});
  auto* gb = gemm.model.Tensor("b", kUInt8, {2, 2});
  for (const int v : {1, 3, 2, 4}) gb->add_int32_data(v);
  for (const char* name : {"az", "bz", "yz"}) {
    gemm.model.Tensor(name, kUInt8, {})->add_int32_data(1);
  }
  auto* c = gemm.model.Tensor("c", kInt32, {2});
  for (const int v : {2, 4}) c->add_int32_data(v);
  gemm.model.Floats("ys", {}, {0.5f});
  gemm.node.Int("transB", 1);
  // [4, 5] · [[0, 1], [2, 3]] = [10, 19], + c, · 0.5 / 0.5, + 1
  EXPECT_THAT(Integers<uint8_t>(gemm.Run({Tensor::Of<uint8_t>({1, 2}, {5, 6})})[0]),
              ElementsAre(13, 24));
}

// ONNX Runtime answers a scale alone in float32, divided by that scale.
TEST_F(ContribTest, QGemmNeedsBothOrNeitherOfWhatQuantizesItsResult) {
  for (const auto& [scale, zero] : {std::pair("ys", ""), std::pair("", "yz")}) {
    ContribNode gemm("QGemm", {"a", "as", "az", "b", "bs", "bz", "", scale, zero});
    gemm.model.Input("a", kUInt8, {1, 2}).Floats("as", {}, {0.5f}).Floats("bs", {}, {1});
    gemm.model.Floats("ys", {}, {0.5f});
    auto* b = gemm.model.Tensor("b", kUInt8, {2, 2});
    for (const int v : {1, 3, 2, 4}) b->add_int32_data(v);
    for (const char* name : {"az", "bz", "yz"}) {
      gemm.model.Tensor(name, kUInt8, {})->add_int32_data(1);
    }
    EXPECT_THAT(RefusedBecause(gemm), HasSubstr("only one of y_scale and y_zero_point"));
  }
}

TEST_F(ContribTest, DynamicQuantizeMatMulIsCloseToTheProduct) {
  ContribNode m("DynamicQuantizeMatMul", {"a", "b", "bs", "", "bias"});
  m.model.Input("a", kFloat, {"n", 2}).Floats("bs", {}, {0.5f}).Floats("bias", {2}, {10, 20});
  auto* b = m.model.Tensor("b", kInt8, {2, 2});
  for (const int v : {2, 0, 0, 4}) b->add_int32_data(v);
  EXPECT_THAT(Values(m.Run({Tensor::Of<float>({2, 2}, {1, -1, 0.5f, 0.25f})})[0]),
              Pointwise(FloatNear(0.02f), std::vector<float>{11, 18, 10.5f, 20.5f}));
}

TEST_F(ContribTest, DynamicQuantizeLstmIsTheLayerOfItsWeights) {
  const Tensor x = Random({3, 2, 2});
  ContribNode m("DynamicQuantizeLSTM", {"x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"},
                {"y", "h", "c"});
  m.model.Input("x", kFloat, {3, 2, 2});
  ModelBuilder plain(17);
  plain.Input("x", kFloat, {3, 2, 2}).Output("y").Output("h").Output("c");
  // [1, 2, 4] and scales by column, against [1, 4, 2].
  for (const char* name : {"w", "r"}) {
    auto* quantised = m.model.Tensor(name, kInt8, {1, name[0] == 'w' ? 2 : 1, 4});
    auto* real = plain.Tensor(name, kFloat, {1, 4, name[0] == 'w' ? 2 : 1});
    const int rows = name[0] == 'w' ? 2 : 1;
    std::vector<int> values;
    for (int i = 0; i < rows * 4; ++i) {
      values.push_back(static_cast<int>(random_() % 255) - 127);
      quantised->add_int32_data(values.back());
    }
    for (int column = 0; column < 4; ++column) {
      for (int row = 0; row < rows; ++row) {
        real->add_float_data(static_cast<float>(values[static_cast<size_t>(row * 4 + column)] - 3) *
                             0.01f * static_cast<float>(column + 1));
      }
    }
    m.model.Floats(std::string(name) + "s", {1, 4}, {0.01f, 0.02f, 0.03f, 0.04f});
    auto* zero = m.model.Tensor(std::string(name) + "z", kInt8, {1, 4});
    for (int i = 0; i < 4; ++i) zero->add_int32_data(3);
  }
  m.node.Int("hidden_size", 1);
  plain.Node("LSTM", {"x", "w", "r"}, {"y", "h", "c"}).Int("hidden_size", 1);
  const auto model = plain.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto got = m.Run({x}), want = testing::Evaluate(model->graph, {x});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(Values(got[i]), Pointwise(FloatNear(1e-6f), Values(want[i])));
  }
}

// Rows of 4-bit codes, two to a byte, in blocks of 16: [2, 20], so that the second block is short.
struct QuantisedTable : ContribNode {
  explicit QuantisedTable(int data_type, std::initializer_list<std::string> inputs)
      : ContribNode("GatherBlockQuantized", inputs, {"y"}, 21) {
    model.Input("i", kInt64, {"n"});
    const bool of_bytes = data_type == kUInt8;
    auto* data = model.Tensor("data", data_type, {2, of_bytes ? 10 : 20});
    for (int i = 0; i < 20; ++i) data->add_int32_data(0x10 * (i % 7) + 15 - i % 5);
    node.Int("bits", 4).Int("block_size", 16);
  }
  // Entry k of a row, in its byte.
  static int Code(int row, int k) {
    const int at = row * 20 + k, byte = 0x10 * (at / 2 % 7) + 15 - at / 2 % 5;
    return at % 2 == 0 ? byte & 15 : byte >> 4;
  }
};

TEST_F(ContribTest, GatherBlockQuantizedIsRowsOfWhatCodesStandFor) {
  for (const int type : {kUInt8, kUInt4, kInt4}) {
    for (const bool zeros : {false, true}) {
      QuantisedTable m = zeros ? QuantisedTable(type, {"data", "i", "scales", "zeros"})
                               : QuantisedTable(type, {"data", "i", "scales"});
      m.model.Floats("scales", {2, 2}, {1, 2, 0.5f, 4});
      const bool of_bytes = type == kUInt8;
      auto* zero = m.model.Tensor("zeros", type, {2, of_bytes ? 1 : 2});  // 3, 1; 2, 5
      for (const int byte : {0x13, 0x52}) zero->add_int32_data(byte);
      const std::vector<Tensor> y = m.Run({Tensor::Of<int64_t>({3}, {1, 0, -1})});
      ASSERT_EQ(y[0].shape(), (Shape{3, 20}));
      for (int at = 0; at < 60; ++at) {
        const int row = at / 20 == 1 ? 0 : 1, k = at % 20, block = k / 16;
        int code = QuantisedTable::Code(row, k);
        if (type == kInt4 && code > 7) code -= 16;
        const int from = zeros ? (row == 0 ? 3 - 2 * block : 2 + 3 * block) : of_bytes ? 8 : 0;
        const float scale =
            row == 0 ? 1.0f + static_cast<float>(block) : 0.5f + 3.5f * static_cast<float>(block);
        ASSERT_EQ(y[0].data<float>()[at], static_cast<float>(code - from) * scale) << at;
      }
    }
  }
}

// A block longer than a row, however long, takes no more memory than the row.
TEST_F(ContribTest, GatherBlockQuantizedOfOneHugeBlock) {
  ContribNode m("GatherBlockQuantized", {"data", "i", "scales"});
  m.model.Input("i", kInt64, {"n"}).Floats("scales", {1, 1}, {2});
  m.model.Tensor("data", kUInt8, {1, 1})->add_int32_data(0x9A);
  m.node.Int("bits", 4).Int("block_size", int64_t{1} << 62);
  EXPECT_THAT(Values(m.Run({Tensor::Of<int64_t>({1}, {0})})[0]), ElementsAre(4, 2));
}

TEST_F(ContribTest, GatherBlockQuantizedRefusesScalesAndZeroPointsOfOtherShapes) {
  const auto error = [](int scale_rows, int blocks, int zero_type, int zero_bytes) {
    QuantisedTable m(kUInt8, {"data", "i", "scales", "zeros"});
    m.model.Input("scales", kFloat, {scale_rows, blocks});
    m.model.Input("zeros", zero_type, {2, zero_bytes});
    return RefusedBecause(m);
  };
  // Either would have been broadcast.
  EXPECT_THAT(error(2, 1, kUInt8, 1), HasSubstr("its scales [2,1] must be [2,2]"));
  EXPECT_THAT(error(3, 2, kUInt8, 1), HasSubstr("its scales [3,2] must be [2,2]"));
  EXPECT_THAT(error(2, 2, kUInt8, 2), HasSubstr("its zero points [2,2] must be [2,1]"));
  EXPECT_THAT(error(2, 2, kInt8, 1), HasSubstr("its zero points are int8, but its data are uint8"));
  QuantisedTable eight(kInt4, {"data", "i", "scales"});
  eight.model.Floats("scales", {2, 2}, {1, 1, 1, 1});
  eight.model.model().mutable_graph()->mutable_node(0)->mutable_attribute(0)->set_i(8);
  EXPECT_THAT(RefusedBecause(eight), HasSubstr("its data have 4 bits, but bits is 8"));
}

// Zero points of 4 bits are two to a byte: int8 of one block a column might be taken for floats.
TEST_F(ContribTest, MatMulNBitsTakesZeroPointsOfItsTypesAlone) {
  const auto refused = [](int type) {
    ContribNode m("MatMulNBits", {"a", "b", "scales", "zeros"});
    m.model.Input("a", kFloat, {"n", 16}).Input("b", kUInt8, {3, 1, 8});
    m.model.Floats("scales", {3}, {1, 1, 1}).Input("zeros", type, {3});
    m.node.Int("K", 16).Int("N", 3).Int("bits", 4).Int("block_size", 16);
    const StatusOr<Graph> graph = m.Import();
    return graph.ok() ? "" : Message(graph.status());
  };
  EXPECT_EQ(refused(kUInt8), "");
  EXPECT_EQ(refused(kFloat), "");
  EXPECT_EQ(refused(onnx::TensorProto::FLOAT16), "");
  for (const int type : {kInt8, kInt32, kInt64}) {
    EXPECT_THAT(refused(type), HasSubstr("but the operator takes float32, uint8"));
  }
}

}  // namespace
}  // namespace chairlift
