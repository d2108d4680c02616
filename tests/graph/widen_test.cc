#include "graph/widen.h"

#include <gmock/gmock.h>

#include <limits>

#include "graph/graph_builder.h"
#include "graph/passes/pass_harness.h"
#include "ops/element_type.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::Attrs;
using ::testing::ElementsAreArray;
using testing::Evaluate;
using testing::GraphBuilder;

Tensor Halves(std::vector<float> values) {
  Tensor tensor = Tensor::Allocate(DType::kFloat16, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.data<Float16>()[i] = Float16(values[i]);
  return tensor;
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

TEST(WidenTest, EveryFloat16BecomesFloat32) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const int64_t half = OnnxOfElementType(DType::kFloat16);
  GraphBuilder then_body, else_body, b;
  const ValueId inner = then_body.Capture(DType::kFloat16, SymbolicShape(Shape{3}));
  then_body.Output(then_body.Op("Add", {inner, then_body.Constant(Halves({0.1f, 2, -65504}))}));
  else_body.Output(
      else_body.Op("Neg", {else_body.Capture(DType::kFloat16, SymbolicShape(Shape{3}))}));
  const ValueId x = b.Input("x", DType::kFloat16, SymbolicShape(Shape{3}));
  const ValueId flag = b.Input("flag", DType::kBool, SymbolicShape(Shape{}));
  const ValueId count = b.Input("count", DType::kInt64, SymbolicShape(Shape{3}));
  const ValueId chosen = b.Op("If", {flag, x, x},
                              Attrs({{"then_branch", std::move(then_body).BuildShared()},
                                     {"else_branch", std::move(else_body).BuildShared()}}));
  const ValueId cast = b.Op("Cast", {count}, Attrs({{"to", half}}));
  const ValueId filled = b.Op("ConstantOfShape", {b.Constant(Tensor::Of<int64_t>({1}, {3}))},
                              Attrs({{"value", Halves({65504})}}));
  const ValueId scaled = b.Op("Mul", {cast, b.Constant(Halves({0.1f, 65504, 1}))});
  b.Output(b.Op("Sum", {chosen, scaled, filled}));
  Graph graph = std::move(b).Build();
  const Status inferred = InferShapes(graph);
  ASSERT_TRUE(inferred.ok()) << inferred;
  EXPECT_TRUE(HasFloat16(graph));

  ASSERT_TRUE(WidenFloats(graph).ok());
  EXPECT_FALSE(HasFloat16(graph));
  EXPECT_EQ(graph.values[x].dtype, DType::kFloat);
  EXPECT_EQ(graph.values[graph.outputs[0]].dtype, DType::kFloat);
  EXPECT_EQ(graph.values[count].dtype, DType::kInt64);
  const auto tenth = static_cast<float>(Float16(0.1f));
  for (const Node& node : graph.nodes) {
    SCOPED_TRACE(node.Describe());
    if (node.def->name == "Cast") {
      EXPECT_EQ(node.attributes.Int("to", 0), OnnxOfElementType(DType::kFloat));
    }
    if (node.def->name == "ConstantOfShape") {
      EXPECT_THAT(FloatsOf(*node.attributes.Find<Tensor>("value")), ::testing::ElementsAre(kMost));
    }
    if (node.def->name == "Mul") {
      EXPECT_THAT(FloatsOf(graph.values[node.inputs[1]].constant),
                  ::testing::ElementsAre(tenth, kMost, 1));
    }
    if (node.def->name == "If") {
      const auto bodies = Subgraphs(node);
      const Graph& then = *bodies[1].second;
      EXPECT_THAT(FloatsOf(then.values[then.nodes[0].inputs[1]].constant),
                  ::testing::ElementsAre(tenth, 2, -kMost));
    }
  }
}

TEST(WidenTest, OtherGraphsStayAsTheyAre) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kDouble, SymbolicShape(Shape{2}));
  b.Output(b.Op("Neg", {x}));
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  EXPECT_FALSE(HasFloat16(graph));
  ASSERT_TRUE(WidenFloats(graph).ok());
  EXPECT_EQ(graph.values[graph.outputs[0]].dtype, DType::kDouble);
}

// A graph that gives out what it gets, beside what it computes.
TEST(WidenTest, InputsAndOutputsMayKeepTheirTypes) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat16, SymbolicShape(Shape{3}));
  const ValueId y = b.Input("y", DType::kFloat, SymbolicShape(Shape{3}));
  const ValueId sum = b.Op("Add", {x, b.Constant(Halves({0.1f, 2, -3}))});
  b.Output(sum);
  b.Output(x);
  b.Output(y);
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  const std::string sum_name = graph.values[sum].name;
  const std::vector<Tensor> inputs = {Halves({1, 100, -0.3f}), Tensor::Of<float>({3}, {1, 2, 3})};
  const std::vector<Tensor> before = Evaluate(graph, inputs);

  const Status widened = WidenInside(graph);
  ASSERT_TRUE(widened.ok()) << widened;
  const auto type = [&](ValueId id) { return graph.values[id].dtype; };
  EXPECT_EQ(type(graph.inputs[0]), DType::kFloat16);
  EXPECT_EQ(graph.values[graph.inputs[0]].name, "x");
  EXPECT_EQ(type(graph.inputs[1]), DType::kFloat);
  EXPECT_EQ(type(graph.outputs[0]), DType::kFloat16);
  EXPECT_EQ(graph.values[graph.outputs[0]].name, sum_name);
  EXPECT_EQ(type(graph.outputs[1]), DType::kFloat16);
  EXPECT_EQ(type(graph.outputs[2]), DType::kFloat);
  for (const Node& node : graph.nodes) {
    if (node.def->name == "Add") {
      EXPECT_EQ(type(node.outputs[0]), DType::kFloat);
    }
  }
  const std::vector<Tensor> after = Evaluate(graph, inputs);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_THAT(AsDoubles(after[i]), ElementsAreArray(AsDoubles(before[i])));
  }
}

TEST(WidenTest, AGraphWithoutFloat16StaysAsItIs) {
  GraphBuilder b;
  b.Output(b.Op("Neg", {b.Input("x", DType::kFloat, SymbolicShape(Shape{3}))}));
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(WidenInside(graph).ok());
  EXPECT_EQ(graph.nodes.size(), 1u);
}

}  // namespace
}  // namespace chairlift
