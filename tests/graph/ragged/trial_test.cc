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
