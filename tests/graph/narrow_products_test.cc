#include "graph/narrow_products.h"

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "ops/linear/product.h"

namespace chairlift {
namespace narrow_products_test {

using testing::Attrs;
using testing::GraphBuilder;

Tensor Matrix(DType dtype) { return Tensor::Allocate(dtype, Shape{4, 4}); }

bool Marked(const Node& node) { return RoundsToBFloat16(node.attributes); }

TEST(NarrowProductsTest, ConstantFloat32WeightsAreMarked) {
  GraphBuilder b;
  const SymbolicShape square(Shape{4, 4});
  const ValueId x = b.Input("x", DType::kFloat, square);
  const ValueId weights = b.Constant(Matrix(DType::kFloat));
  b.Output(b.Op("MatMul", {x, weights}));
  b.Output(b.Op("Gemm", {x, weights}));
  b.Output(b.Op("FusedMatMul", {x, weights}, {}, "chairlift"));
  b.Output(b.Op("ParallelMatMul", {x, weights, kNoValue}, {}, "chairlift"));
  b.Output(b.Op("MatMul", {x, x}));        // B is computed
  b.Output(b.Op("MatMul", {weights, x}));  // as here
  b.Output(
      b.Op("MatMul", {b.Input("d", DType::kDouble, square), b.Constant(Matrix(DType::kDouble))}));
  b.Output(b.Op("Add", {x, weights}));
  Graph graph = std::move(b).Build();
  EXPECT_EQ(MarkNarrowProducts(graph, DType::kBFloat16), 4);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_EQ(Marked(graph.nodes[i]), i < 4) << i;
    EXPECT_FALSE(RoundsToInt8(graph.nodes[i].attributes)) << i;
  }
}

TEST(NarrowProductsTest, SubGraphsToo) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{4, 4}));
  const ValueId flag = b.Input("flag", DType::kBool, SymbolicShape(Shape{}));
  const auto branch = [](bool constant) {
    GraphBuilder body;
    const ValueId inside = body.Capture(DType::kFloat, SymbolicShape(Shape{4, 4}));
    body.Output(
        body.Op("MatMul", {inside, constant ? body.Constant(Matrix(DType::kFloat)) : inside}));
    return std::move(body).BuildShared();
  };
  b.Output(b.Op("If", {flag, x, x},
                Attrs({{"then_branch", branch(false)}, {"else_branch", branch(true)}})));
  Graph graph = std::move(b).Build();
  Graph bytes = graph;
  EXPECT_EQ(MarkNarrowProducts(bytes, DType::kInt8), 1);
  for (const auto& [name, body] : Subgraphs(bytes.nodes[0])) {
    EXPECT_EQ(RoundsToInt8(body->nodes[0].attributes), name == "else_branch") << name;
    EXPECT_FALSE(Marked(body->nodes[0]));
  }
  EXPECT_EQ(MarkNarrowProducts(graph, DType::kBFloat16), 1);
  for (const auto& [name, body] : Subgraphs(graph.nodes[0])) {
    EXPECT_EQ(Marked(body->nodes[0]), name == "else_branch") << name;
  }
}

}  // namespace narrow_products_test
}  // namespace chairlift
