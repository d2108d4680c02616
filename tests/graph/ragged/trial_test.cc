// The last guard: a packed model that does not answer as the original is refused.
#include "graph/ragged/trial.h"

#include <gtest/gtest.h>

#include "graph/graph_builder.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::GraphBuilder;

// Sums over tokens of |x|, and the tokens themselves.
Graph Sums() {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat,
                            SymbolicShape({Dim::Symbol("batch"), Dim::Symbol("length"), Dim(3)}));
  const ValueId y = b.Op("Abs", {x});
  b.Output(b.Op("ReduceSum", {y, b.Constant(Tensor::Of<int64_t>(Shape{1}, {1}))},
                Attrs({{"keepdims", int64_t{0}}})));
  b.Output(y);
  Graph graph = std::move(b).Build();
  EXPECT_TRUE(InferShapes(graph).ok());
  return graph;
}

Node& Find(Graph& graph, std::string_view op) {
  for (Node& node : graph.nodes) {
    if (node.def->name == op) return node;
  }
  ADD_FAILURE() << "no " << op;
  return graph.nodes[0];
}

TEST(RaggedTrialTest, AModelThatAnswersAsTheOriginalPasses) {
  const Graph graph = Sums();
  auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  model->notes.clear();
  EXPECT_TRUE(ragged::TryPacked(graph, *model).ok());
  EXPECT_EQ(model->notes,
            std::vector<std::string>{"tried on examples, it answers as the model does"});
}

TEST(RaggedTrialTest, WhatAnswersOtherwiseIsRefusedByName) {
  const Graph graph = Sums();
  auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  RaggedModel wrong = *model;
  Find(wrong.graph, "RaggedReduce").attributes.Set("op", std::string("max"));
  EXPECT_NE(Message(ragged::TryPacked(graph, wrong)).find("output"), std::string::npos);
  wrong = *model;
  Find(wrong.graph, "Abs").def = OperatorRegistry::Builtin().Find("", "Identity");
  EXPECT_FALSE(ragged::TryPacked(graph, wrong).ok());
  wrong = *model;
  wrong.output_is_tokens = {true, true};
  EXPECT_FALSE(ragged::TryPacked(graph, wrong).ok());
  wrong = *model;
  wrong.min_length = 5, wrong.max_length = 4;
  EXPECT_FALSE(ragged::TryPacked(graph, wrong).ok());
}

// Products that a model allows to round their rows are tried without: what is wrong by less than
// such a rounding is found.
TEST(RaggedTrialTest, RoundingsOfTheModelHideNothing) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat,
                            SymbolicShape({Dim::Symbol("batch"), Dim::Symbol("length"), Dim(16)}));
  Tensor codes = Tensor::Allocate(DType::kUInt8, Shape{16, 1, 8});
  for (int64_t i = 0; i < codes.size(); ++i) {
    codes.data<uint8_t>()[i] = static_cast<uint8_t>(37 * i);
  }
  const Attributes attributes = Attrs({{"K", int64_t{16}},
                                       {"N", int64_t{16}},
                                       {"bits", int64_t{4}},
                                       {"block_size", int64_t{16}},
                                       {"accuracy_level", int64_t{4}}});
  const ValueId weights = b.Constant(codes);
  const ValueId scales = b.Constant(Tensor::Of<float>(Shape{16}, std::vector<float>(16, 0.1f)));
  ValueId y = x;
  for (int i = 0; i < 4; ++i) {
    y = b.Op("MatMulNBits", {y, weights, kNoValue, kNoValue, scales}, attributes, "chairlift");
  }
  b.Output(b.Op("Mul", {y, b.Constant(Tensor::Scalar(2.0f))}));
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(ragged::TryPacked(graph, *model).ok());
  const Node& mul = Find(model->graph, "Mul");
  model->graph.values[static_cast<size_t>(mul.inputs[1])].constant = Tensor::Scalar(2.004f);
  EXPECT_FALSE(ragged::TryPacked(graph, *model).ok());
}

TEST(RaggedTrialTest, WhatTheOriginalCannotRunIsNoted) {
  GraphBuilder b;
  const ValueId ids =
      b.Input("ids", DType::kInt64, SymbolicShape({Dim::Symbol("batch"), Dim::Symbol("length")}));
  // A table of one row, so that not every number is a place in it.
  b.Output(b.Op("Gather", {b.Constant(Tensor::Of<float>(Shape{1, 2}, {1, 2})), ids}));
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  const auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NE(model->notes.back().find("not tried"), std::string::npos);
}

}  // namespace
}  // namespace chairlift
