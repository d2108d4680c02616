#include "graph/specialise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graph_builder.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::GraphBuilder;
using ::testing::HasSubstr;

std::shared_ptr<const Graph> Branch(const char* op) {
  GraphBuilder b;
  b.Output(b.Op(op, {b.Capture(DType::kFloat, {})}));
  return std::move(b).BuildShared();
}

// y = Relu(x) where `rate` is 16000, else Neg(x); then squeezed where x has one column.
Graph Branching() {
  GraphBuilder b;
  const ValueId x =
      b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("batch"), Dim::Symbol("columns")}));
  const ValueId rate = b.Input("rate", DType::kInt64, SymbolicShape::Scalar());
  const ValueId is_fast = b.Op("Equal", {rate, b.Constant(Tensor::Scalar<int64_t>(16000))});
  const ValueId y = b.Op("If", {is_fast, x, x},
                         Attrs({{"then_branch", Branch("Relu")}, {"else_branch", Branch("Neg")}}));
  const ValueId columns =
      b.Op("Gather", {b.Op("Shape", {y}), b.Constant(Tensor::Scalar<int64_t>(1))},
           Attrs({{"axis", int64_t{0}}}));
  const ValueId one = b.Op("Equal", {columns, b.Constant(Tensor::Scalar<int64_t>(1))});
  b.Output(b.Op("If", {one, y, y},
                Attrs({{"then_branch", Branch("Squeeze")}, {"else_branch", Branch("Identity")}})));
  Graph graph = std::move(b).Build();
  EXPECT_TRUE(InferShapes(graph).ok());
  return graph;
}

TEST(SpecialiseTest, BranchesThatFollowFromWhatIsFixedAreTaken) {
  Graph graph = Branching();
  const Status status =
      Specialise(graph, {{"rate", Tensor::Scalar<int64_t>(16000)}}, {{"columns", 3}});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.values[graph.inputs[0]].shape.ToString(), "[batch,3]");
  ASSERT_FALSE(graph.nodes.empty());
  EXPECT_EQ(graph.nodes[0].def->name, "Relu");
  for (const Node& node : graph.nodes) EXPECT_NE(node.def->name, "If");
  EXPECT_EQ(graph.values[graph.outputs[0]].shape.ToString(), "[batch,3]");
}

TEST(SpecialiseTest, SaysWhatCannotBeFixed) {
  const auto why = [](const std::map<std::string, Tensor>& inputs,
                      const std::map<std::string, int64_t>& dims) {
    Graph graph = Branching();
    const Status status = Specialise(graph, inputs, dims);
    EXPECT_FALSE(status.ok());
    return Message(status);
  };
  EXPECT_THAT(why({{"speed", Tensor::Scalar<int64_t>(1)}}, {}), HasSubstr("no input 'speed'"));
  EXPECT_THAT(why({{"rate", Tensor::Scalar<float>(1)}}, {}), HasSubstr("is int64"));
  EXPECT_THAT(why({{"rate", Tensor::Of<int64_t>(Shape{1}, {1})}}, {}), HasSubstr("the shape []"));
  EXPECT_THAT(why({}, {{"rows", 2}}), HasSubstr("no dimension 'rows'"));
  EXPECT_THAT(why({}, {{"columns", 0}}), HasSubstr("cannot be 0"));
}

TEST(SpecialiseTest, WholeShapesMayNameOtherSymbols) {
  Graph graph = Branching();
  const Status status =
      SpecialiseShapes(graph, {{"rate", Tensor::Scalar<int64_t>(8000)}},
                       {{"x", SymbolicShape({Dim(int64_t{2}), Dim::Symbol("lanes")})}});
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.values[graph.inputs[0]].shape.ToString(), "[2,lanes]");
  ASSERT_FALSE(graph.nodes.empty());
  EXPECT_EQ(graph.nodes[0].def->name, "Neg");
  EXPECT_EQ(graph.values[graph.nodes[0].outputs[0]].shape.ToString(), "[2,lanes]");
}

std::shared_ptr<const Graph> SqueezeColumns() {
  GraphBuilder b;
  b.Output(b.Op("Squeeze",
                {b.Capture(DType::kFloat, {}), b.Constant(Tensor::Of<int64_t>(Shape{1}, {1}))}));
  return std::move(b).BuildShared();
}

// y = −Squeeze(x, 1) where x [batch, columns] has one column, else −x. Nothing is inferred yet.
Graph Squeezing(const Dim& columns = Dim::Symbol("columns")) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("batch"), columns}));
  const ValueId count = b.Op("Gather", {b.Op("Shape", {x}), b.Constant(Tensor::Scalar<int64_t>(1))},
                             Attrs({{"axis", int64_t{0}}}));
  const ValueId one = b.Op("Equal", {count, b.Constant(Tensor::Scalar<int64_t>(1))});
  const ValueId squeezed =
      b.Op("If", {one, x, x},
           Attrs({{"then_branch", SqueezeColumns()}, {"else_branch", Branch("Identity")}}));
  b.Output(b.Op("Neg", {squeezed}));
  return std::move(b).Build();
}

TEST(SpecialiseTest, ABranchForOtherShapesIsNoError) {
  for (const int64_t columns : {int64_t{1}, int64_t{6}}) {
    Graph graph = Squeezing();
    ASSERT_TRUE(InferShapes(graph).ok());
    const Status status =
        SpecialiseShapes(graph, {}, {{"x", SymbolicShape({Dim::Symbol("batch"), Dim(columns)})}});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(graph.values[graph.outputs[0]].shape.ToString(),
              columns == 1 ? "[batch]" : "[batch,6]");
  }
  Graph graph = Squeezing();
  ASSERT_TRUE(InferShapes(graph).ok());
  EXPECT_TRUE(Specialise(graph, {}, {{"columns", 6}}).ok());
}

TEST(SpecialiseTest, ABranchThatDeclaredShapesRuleOutIsNoError) {
  Graph graph = Squeezing(Dim(6));
  ASSERT_FALSE(InferShapes(graph).ok());
  graph = Squeezing(Dim(6));
  const Status status = InferTakenBranches(graph);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Verify(graph).ok());
  for (const Node& node : graph.nodes) EXPECT_NE(node.def->name, "If");
  EXPECT_EQ(graph.values[graph.outputs[0]].shape.ToString(), "[batch,6]");
}

TEST(SpecialiseTest, ABranchThatMayBeTakenIsAnError) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("batch"), Dim(6)}));
  const ValueId flag = b.Input("flag", DType::kBool, SymbolicShape::Scalar());
  b.Output(b.Op("If", {flag, x, x},
                Attrs({{"then_branch", SqueezeColumns()}, {"else_branch", Branch("Identity")}})));
  Graph graph = std::move(b).Build();
  EXPECT_THAT(Message(InferTakenBranches(graph)), HasSubstr("then_branch"));
}

TEST(SpecialiseTest, ShapesOfWhatIsNoInputAreAnError) {
  Graph graph = Branching();
  const Status status = SpecialiseShapes(graph, {}, {{"z", SymbolicShape::Scalar()}});
  EXPECT_THAT(Message(status), HasSubstr("no input 'z'"));
}

}  // namespace
}  // namespace chairlift
