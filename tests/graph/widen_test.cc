#include "graph/widen.h"

#include <gmock/gmock.h>

#include <functional>
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
      EXPECT_THAT(FloatsOf(*node.attributes.Find<Tensor>("value")), ::testing::ElementsAre(65504));
    }
    if (node.def->name == "Mul") {
      EXPECT_THAT(FloatsOf(graph.values[node.inputs[1]].constant),
                  ::testing::ElementsAre(tenth, 65504, 1));
    }
    if (node.def->name == "If") {
      const auto bodies = Subgraphs(node);
      const Graph& then = *bodies[1].second;
      EXPECT_THAT(FloatsOf(then.values[then.nodes[0].inputs[1]].constant),
                  ::testing::ElementsAre(tenth, 2, -65504));
    }
  }
}

// How a mask reaches the softmax, and whether it is proved to be one.
struct MaskCase {
  const char* name;
  std::function<void(GraphBuilder&, ValueId scores, ValueId least)> build;
  bool is_mask;
};

const MaskCase kMaskCases[] = {
    {"added to scores",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       b.Output(b.Op("Softmax", {b.Op("Add", {scores, least})}));
     },
     true},
    {"in place of scores, then scaled",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       const ValueId flag = b.Input("flag", DType::kBool, SymbolicShape(Shape{3}));
       const ValueId chosen = b.Op("Where", {flag, scores, least});
       b.Output(b.Op("Softmax", {b.Op("Div", {chosen, b.Constant(Halves({8}))})}));
     },
     true},
    {"times one less a mask of whole numbers",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       const ValueId mask = b.Input("mask", DType::kInt64, SymbolicShape(Shape{3}));
       const ValueId cast =
           b.Op("Cast", {mask}, Attrs({{"to", OnnxOfElementType(DType::kFloat16)}}));
       const ValueId rest = b.Op("Sub", {b.Constant(Halves({1})), cast});
       const ValueId added = b.Op("Mul", {rest, least});
       b.Output(b.Op("Softmax", {b.Op("Add", {scores, added})}));
       b.Output(b.Op("Softmax", {b.Op("Max", {b.Op("Add", {scores, added}), least})}));
     },
     true},
    {"times a mask of any numbers",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       const ValueId mask = b.Input("mask", DType::kFloat16, SymbolicShape(Shape{3}));
       b.Output(b.Op("Softmax", {b.Op("Add", {scores, b.Op("Mul", {mask, least})})}));
     },
     false},
    {"times a small number",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       const ValueId small = b.Op("Mul", {least, b.Constant(Halves({0.0001f}))});
       b.Output(b.Op("Softmax", {b.Op("Add", {scores, small})}));
     },
     false},
    {"given out too",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       const ValueId sum = b.Op("Add", {scores, least});
       b.Output(b.Op("Softmax", {sum}));
       b.Output(sum);
     },
     false},
    {"read by something else too",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       b.Output(b.Op("Softmax", {b.Op("Add", {scores, least})}));
       b.Output(b.Op("Div", {least, scores}));
     },
     false},
    {"never near a softmax",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       b.Output(b.Op("Add", {scores, least}));
     },
     false},
    {"captured by a branch that masks with it",
     [](GraphBuilder& b, ValueId scores, ValueId least) {
       const ValueId flag = b.Input("flag", DType::kBool, SymbolicShape(Shape{}));
       const auto body = [] {
         GraphBuilder branch;
         const ValueId s = branch.Capture(DType::kFloat16, SymbolicShape(Shape{3}));
         const ValueId mask = branch.Capture(DType::kFloat16, SymbolicShape(Shape{3}));
         branch.Output(branch.Op("Softmax", {branch.Op("Add", {s, mask})}));
         return std::move(branch).BuildShared();
       };
       const ValueId moved = b.Op("Reshape", {least, b.Constant(Tensor::Of<int64_t>({1}, {3}))});
       b.Output(b.Op("If", {flag, scores, moved, scores, moved},
                     Attrs({{"then_branch", body()}, {"else_branch", body()}})));
     },
     true},
};

TEST(WidenTest, TheLeastNumberGrowsInMasksAlone) {
  for (const MaskCase& c : kMaskCases) {
    SCOPED_TRACE(c.name);
    GraphBuilder b;
    const ValueId scores = b.Input("scores", DType::kFloat16, SymbolicShape(Shape{3}));
    const ValueId least = b.Constant(Halves({-65504, 0, -65504}));
    c.build(b, scores, least);
    Graph graph = std::move(b).Build();
    const Status inferred = InferShapes(graph);
    ASSERT_TRUE(inferred.ok()) << inferred;
    ASSERT_TRUE(WidenFloats(graph).ok());
    const float wide = c.is_mask ? std::numeric_limits<float>::lowest() : -65504;
    EXPECT_THAT(FloatsOf(graph.values[least].constant), ::testing::ElementsAre(wide, 0, wide));
  }
}

// A file may be one long chain: no call for each of its nodes.
TEST(WidenTest, LongChainsAreNotFollowed) {
  GraphBuilder b;
  ValueId x = b.Constant(Halves({-65504}));
  const ValueId least = x;
  for (int i = 0; i < 100'000; ++i) x = b.Op("Add", {x, x});
  b.Output(b.Op("Softmax", {x}));
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  ASSERT_TRUE(WidenFloats(graph).ok());
  EXPECT_THAT(FloatsOf(graph.values[least].constant), ::testing::ElementsAre(-65504));
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

// A graph that outputs its inputs, besides what it computes.
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
  const std::vector<Tensor> before = testing::Evaluate(graph, inputs);

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
  const std::vector<Tensor> after = testing::Evaluate(graph, inputs);
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
