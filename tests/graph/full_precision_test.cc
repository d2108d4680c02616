#include "graph/full_precision.h"

#include <gtest/gtest.h>

#include "graph/graph_builder.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::GraphBuilder;

ValueId AddProduct(GraphBuilder& b, ValueId x, int64_t level) {
  const Tensor codes = Tensor::Allocate(DType::kUInt8, Shape{16, 1, 8});
  const Tensor scales = Tensor::Allocate(DType::kFloat, Shape{16});
  return b.Op("MatMulNBits", {x, b.Constant(codes), kNoValue, kNoValue, b.Constant(scales)},
              Attrs({{"K", int64_t{16}},
                     {"N", int64_t{16}},
                     {"block_size", int64_t{16}},
                     {"accuracy_level", level}}),
              "chairlift");
}

Graph OneProduct(int64_t level) {
  GraphBuilder b;
  b.Output(AddProduct(b, b.Input("x", DType::kFloat, SymbolicShape(Shape{2, 16})), level));
  return std::move(b).Build();
}

TEST(FullPrecisionTest, ProductsThatMayRoundNoLongerMay) {
  const std::optional<Graph> full = InFullPrecision(OneProduct(4));
  ASSERT_TRUE(full);
  EXPECT_FALSE(full->nodes[0].attributes.Has("accuracy_level"));
  EXPECT_EQ(full->nodes[0].attributes.Int("K", 0), 16);
}

TEST(FullPrecisionTest, GraphsThatRoundNothingStay) {
  for (const int64_t level : {0, 1, 3}) EXPECT_FALSE(InFullPrecision(OneProduct(level)));
}

TEST(FullPrecisionTest, SubGraphsToo) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{2, 16}));
  const ValueId flag = b.Input("flag", DType::kBool, SymbolicShape(Shape{}));
  const auto branch = [](int64_t level) {
    GraphBuilder body;
    body.Output(AddProduct(body, body.Capture(DType::kFloat, SymbolicShape(Shape{2, 16})), level));
    return std::move(body).BuildShared();
  };
  b.Output(
      b.Op("If", {flag, x, x}, Attrs({{"then_branch", branch(0)}, {"else_branch", branch(4)}})));
  const Graph graph = std::move(b).Build();
  const std::optional<Graph> full = InFullPrecision(graph);
  ASSERT_TRUE(full);
  for (const auto& [name, body] : Subgraphs(full->nodes[0])) {
    EXPECT_NE(body->nodes[0].attributes.Int("accuracy_level", 0), 4) << name;
  }
  // The graph it is of has what it had.
  const auto* of = graph.nodes[0].attributes.Find<std::shared_ptr<const Graph>>("else_branch");
  EXPECT_EQ((*of)->nodes[0].attributes.Int("accuracy_level", 0), 4);
}

}  // namespace
}  // namespace chairlift
