// Random operators of ONNX: that they become chairlift::Random, and what they compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "graph/batch_axis.h"
#include "graph/model_builder.h"
#include "graph/passes/pass.h"
#include "graph/passes/pass_harness.h"
#include "ops/generation/random.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using testing::kBool;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;

Graph Imported(const ModelBuilder& model, const std::string& seeds = "seeds") {
  StatusOr<ImportedModel> imported = model.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  EXPECT_EQ(imported->seeds, seeds);
  return std::move(imported->graph);
}

Tensor Filled(const Shape& shape, float value) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::fill_n(t.data<float>(), t.size(), value);
  return t;
}

template <typename T>
double MeanOf(const Tensor& t) {
  double sum = 0;
  for (const T value : t.values<T>()) sum += static_cast<double>(value);
  return sum / static_cast<double>(t.size());
}

TEST(RandomOperatorsTest, NormalAndUniformHaveTheirParameters) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 400});
  for (const char* y : {"normal", "uniform", "other"}) m.Output(y);
  m.Node("RandomNormalLike", {"x"}, {"normal"}).Float("mean", 5).Float("scale", 2);
  m.Node("RandomUniformLike", {"x"}, {"uniform"}).Float("low", -3).Float("high", 1);
  m.Node("RandomNormalLike", {"x"}, {"other"}).Int("dtype", onnx::TensorProto::DOUBLE);
  const std::vector<Tensor> y =
      testing::Evaluate(Imported(m), {Filled({50, 400}, 0), SeedsOf(1, true, 50)});
  ASSERT_EQ(y.size(), 3u);
  EXPECT_NEAR(MeanOf<float>(y[0]), 5, 0.08);
  EXPECT_NEAR(MeanOf<float>(y[1]), -1, 0.05);
  EXPECT_GE(*std::min_element(y[1].values<float>().begin(), y[1].values<float>().end()), -3);
  EXPECT_EQ(y[2].dtype(), DType::kDouble);
  EXPECT_NEAR(MeanOf<double>(y[2]), 0, 0.04);
  // Equal nodes draw different numbers.
  EXPECT_GT(std::abs((y[0].data<float>()[0] - 5) / 2 - y[2].data<double>()[0]), 1e-3);
}

TEST(RandomOperatorsTest, AFixedShapeNeedsNoInput) {
  ModelBuilder m(17);
  m.Output("y").Output("z");
  m.Node("RandomNormal", {}, {"y"}).Ints("shape", {30, 100}).Float("mean", 2);
  m.Node("RandomUniform", {}, {"z"}).Ints("shape", {3000}).Float("seed", 3);
  const Graph graph = Imported(m);
  const std::vector<Tensor> a = testing::Evaluate(graph, {SeedsOf(1, false, 1)});
  const std::vector<Tensor> b = testing::Evaluate(graph, {SeedsOf(2, false, 1)});
  EXPECT_NEAR(MeanOf<float>(a[0]), 2, 0.1);
  EXPECT_NEAR(MeanOf<float>(a[1]), 0.5, 0.03);
  EXPECT_NE(a[0].data<float>()[0], b[0].data<float>()[0]);
  EXPECT_EQ(a[1].data<float>()[0], b[1].data<float>()[0]);
}

TEST(RandomOperatorsTest, BernoulliDrawsWithItsProbabilities) {
  ModelBuilder m(17);
  m.Input("p", kFloat, {"batch", 10'000}).Output("y").Output("flags");
  m.Node("Bernoulli", {"p"}, {"y"});
  m.Node("Bernoulli", {"p"}, {"flags"}).Int("dtype", onnx::TensorProto::BOOL);
  const Graph graph = Imported(m);
  for (const float p : {0.0f, 0.3f, 1.0f}) {
    const std::vector<Tensor> y =
        testing::Evaluate(graph, {Filled({1, 10'000}, p), SeedsOf(1, true, 1)});
    EXPECT_NEAR(MeanOf<float>(y[0]), p, p > 0 && p < 1 ? 0.025 : 0);
    EXPECT_EQ(y[1].dtype(), DType::kBool);
    EXPECT_NEAR(MeanOf<bool>(y[1]), p, p > 0 && p < 1 ? 0.025 : 0);
  }
}

TEST(RandomOperatorsTest, MultinomialDrawsClassesByTheirLogits) {
  ModelBuilder m(17);
  m.Input("logits", kFloat, {"batch", 4}).Output("y");
  m.Node("Multinomial", {"logits"}, {"y"}).Int("sample_size", 20'000).Int("dtype", kInt64);
  const float never = -std::numeric_limits<float>::infinity();
  // Not normalised: twice the first, and one that never comes.
  const Tensor logits = Tensor::Of<float>(
      {2, 4}, {std::log(1.0f), std::log(3.0f), never, std::log(4.0f), 50, never, never, never});
  const std::vector<Tensor> y = testing::Evaluate(Imported(m), {logits, SeedsOf(1, true, 2)});
  ASSERT_EQ(y[0].shape(), (Shape{2, 20'000}));
  std::vector<double> share(4, 0);
  for (int64_t i = 0; i < 20'000; ++i) {
    share[static_cast<size_t>(y[0].data<int64_t>()[i])] += 1.0 / 20'000;
    EXPECT_EQ(y[0].data<int64_t>()[20'000 + i], 0);
  }
  EXPECT_NEAR(share[0], 0.125, 0.015);
  EXPECT_NEAR(share[1], 0.375, 0.02);
  EXPECT_EQ(share[2], 0);
  EXPECT_NEAR(share[3], 0.5, 0.02);
}

ModelBuilder DropoutModel(float ratio) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 10'000}).Input("training", kBool, {});
  m.Floats("ratio", {}, {ratio});
  m.Output("y").Output("mask");
  m.Node("Dropout", {"x", "ratio", "training"}, {"y", "mask"});
  return m;
}

TEST(RandomOperatorsTest, DropoutDropsAndScalesInTraining) {
  const Graph graph = Imported(DropoutModel(0.25f));
  const Tensor x = Filled({1, 10'000}, 3);
  const std::vector<Tensor> on =
      testing::Evaluate(graph, {x, Tensor::Scalar(true), SeedsOf(1, true, 1)});
  EXPECT_NEAR(MeanOf<bool>(on[1]), 0.75, 0.03);
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(on[0].data<float>()[i], on[1].data<bool>()[i] ? 4 : 0, 1e-6);
  }
  const std::vector<Tensor> off =
      testing::Evaluate(graph, {x, Tensor::Scalar(false), SeedsOf(1, true, 1)});
  EXPECT_EQ(MeanOf<bool>(off[1]), 1);
  EXPECT_EQ(MeanOf<float>(off[0]), 3);
}

TEST(RandomOperatorsTest, DropoutThatDropsNothingNeedsNoSeed) {
  const Graph graph = Imported(DropoutModel(0), "");
  EXPECT_EQ(graph.inputs.size(), 2u);
}

TEST(RandomOperatorsTest, NoPassMergesOrFoldsThem) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 8}).Output("difference");
  m.Node("RandomNormal", {}, {"a"}).Ints("shape", {1, 8});
  m.Node("RandomNormal", {}, {"b"}).Ints("shape", {1, 8});
  m.Node("Sub", {"a", "b"}, {"c"});
  m.Node("Add", {"x", "c"}, {"difference"});
  Graph graph = Imported(m);
  const auto optimised = RunPasses(graph, {});
  ASSERT_TRUE(optimised.ok()) << optimised.status();
  const auto draws = std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                   [](const Node& node) { return node.def->name == "Random"; });
  EXPECT_EQ(draws, 2);
}

TEST(RandomOperatorsTest, RowsStayApartWhereEachHasItsNumbers) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 8}).Output("y");
  m.Node("RandomNormalLike", {"x"}, {"noise"});
  m.Node("Add", {"x", "noise"}, {"y"});
  EXPECT_TRUE(AnalyseBatchAxis(Imported(m)).batches) << AnalyseBatchAxis(Imported(m)).why;

  ModelBuilder unnamed(17);
  unnamed.Input("x", kFloat, {"", 8}).Output("y");
  unnamed.Node("RandomNormalLike", {"x"}, {"noise"});
  unnamed.Node("Add", {"x", "noise"}, {"y"});
  EXPECT_TRUE(AnalyseBatchAxis(Imported(unnamed)).batches)
      << AnalyseBatchAxis(Imported(unnamed)).why;
}

TEST(RandomOperatorsTest, RowsAreNotApartOtherwise) {
  ModelBuilder fixed(17);
  fixed.Input("x", kFloat, {"batch", 8}).Output("y");
  fixed.Node("RandomNormal", {}, {"noise"}).Ints("shape", {1, 8});
  fixed.Node("Add", {"x", "noise"}, {"y"});
  const BatchAxisReport report = AnalyseBatchAxis(Imported(fixed));
  EXPECT_FALSE(report.batches);
  EXPECT_THAT(report.why, HasSubstr("its shape is fixed"));

  ModelBuilder turned(17);
  turned.Input("x", kFloat, {"batch", 8}).Output("y");
  turned.Node("Transpose", {"x"}, {"t"});
  turned.Node("RandomNormalLike", {"t"}, {"noise"});
  turned.Node("Transpose", {"noise"}, {"back"});
  turned.Node("Add", {"x", "back"}, {"y"});
  EXPECT_FALSE(AnalyseBatchAxis(Imported(turned)).batches);
}

TEST(RandomOperatorsTest, DrawInBranchesAndFunctionsButNotInLoops) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 8}).Input("which", kBool, {}).Output("y");
  auto choice = m.Node("If", {"which"}, {"y"});
  testing::GraphProtoBuilder yes(choice.Body("then_branch")), no(choice.Body("else_branch"));
  yes.Node("RandomNormalLike", {"x"}, {"drawn"});
  yes.Output("drawn");
  no.Node("Identity", {"x"}, {"same"});
  no.Output("same");
  const Graph graph = Imported(m);
  EXPECT_EQ(graph.inputs.size(), 3u);

  ModelBuilder loop(17);
  loop.Input("x", kFloat, {2}).Output("y");
  loop.Ints("times", {3});
  auto repeated = loop.Node("Loop", {"times", "", "x"}, {"y"});
  testing::GraphProtoBuilder body(repeated.Body("body"));
  body.Input("i", kInt64, {}).Input("go", kBool, {}).Input("v", kFloat, {2});
  body.Node("RandomNormalLike", {"v"}, {"noise"});
  body.Node("Add", {"v", "noise"}, {"next"});
  body.Node("Identity", {"go"}, {"on"});
  body.Output("on").Output("next");
  EXPECT_THAT(std::string(loop.Import().status().message()), HasSubstr("inside a Loop or Scan"));
}

TEST(RandomOperatorsTest, RefusesWhatTheyDoNotTake) {
  const auto error = [](const std::function<void(ModelBuilder&)>& add) {
    ModelBuilder m(17);
    m.Input("x", kFloat, {"batch", 8}).Input("i", kInt64, {"batch", 8}).Output("y");
    add(m);
    return std::string(m.Import().status().message());
  };
  EXPECT_THAT(error([](auto& m) { m.Node("RandomNormal", {}, {"y"}); }),
              HasSubstr("'shape' is missing"));
  EXPECT_THAT(error([](auto& m) { m.Node("RandomNormalLike", {"i"}, {"y"}); }),
              HasSubstr("float types"));
  EXPECT_THAT(
      error([](auto& m) { m.Node("RandomUniform", {}, {"y"}).Ints("shape", {2}).Float("low", 2); }),
      HasSubstr("'high' must be at least"));
  EXPECT_THAT(error([](auto& m) { m.Node("RandomNormal", {}, {"y"}).Ints("shape", {-2}); }),
              HasSubstr("dimension -2"));
  EXPECT_THAT(error([](auto& m) { m.Node("Multinomial", {"x"}, {"y"}).Int("sample_size", 0); }),
              HasSubstr("'sample_size' is 0"));
  EXPECT_THAT(error([](auto& m) { m.Node("Multinomial", {"x"}, {"y"}).Int("dtype", 1); }),
              HasSubstr("int32 or int64"));
}

}  // namespace
}  // namespace chairlift
