// fold_constants, share_constants_with_bodies, select_constant_branches, remove_identities,
// remove_dead_nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace {

using testing::Attrs;
using ::testing::ElementsAre;
using testing::Evaluate;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::PassResult;
using testing::RunPass;

Tensor Floats(std::initializer_list<float> values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}
Tensor Integers(std::initializer_list<int64_t> values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}
SymbolicShape Vector(const std::string& symbol) { return SymbolicShape({Dim::Symbol(symbol)}); }

TEST(FoldConstantsTest, WhatDependsOnConstantsAloneIsComputed) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId sum = b.Op("Add", {b.Constant(Floats({1})), b.Constant(Floats({2}))});
  const ValueId twice = b.Op("Add", {sum, sum});
  b.Output(b.Op("Add", {x, twice}));
  const PassResult r = RunPass("fold_constants", std::move(b).Build());
  EXPECT_EQ(r.rewrites, 2);
  EXPECT_EQ(r.Operators(), "Add");
  EXPECT_THAT(Evaluate(r.graph, {Floats({1, 2})})[0].values<float>(), ElementsAre(7, 8));
}

// y = the shape of x, of which the rule knows what is known of x.
const OperatorDef& TestShape() {
  static const OperatorDef kDef{
      .domain = "test", .name = "Shape", .infer = [](InferContext& c) -> Status {
        const int rank = c.shape(0).rank();
        c.set_output(0, DType::kInt64, SymbolicShape(Shape{rank}));
        c.set_output_elements(0, c.shape(0).dims());
        return absl::OkStatus();
      }};
  return kDef;
}

TEST(FoldConstantsTest, KnownShapesAreConstants) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{2, 3}));
  const ValueId y = b.Input("y", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 3}));
  b.Output(b.Op(TestShape(), {x}));
  b.Output(b.Op(TestShape(), {y}));
  const PassResult r = RunPass("fold_constants", std::move(b).Build());
  EXPECT_EQ(r.Operators(), "Shape");
  EXPECT_THAT(r.graph.values[r.graph.outputs[0]].constant.values<int64_t>(), ElementsAre(2, 3));
}

TEST(FoldConstantsTest, AResultMuchLargerThanItsInputsIsLeft) {
  GraphBuilder b;
  b.Output(b.Op("Expand", {b.Constant(Floats({1})), b.Constant(Integers({1000, 1000, 1000}))}));
  const PassResult r = RunPass("fold_constants", std::move(b).Build());
  EXPECT_EQ(r.rewrites, 0);
  ASSERT_EQ(r.notes.size(), 1u);
  EXPECT_THAT(r.notes[0], HasSubstr("limit"));
}

// x + captured, as a branch.
std::shared_ptr<const Graph> Branch(float extra) {
  GraphBuilder b;
  const ValueId x = b.Capture(DType::kFloat, Vector("n"));
  const ValueId weight = b.Capture(DType::kFloat, SymbolicShape(Shape{1}));
  const ValueId sum = b.Op("Add", {x, weight});
  b.Output(b.Op("Add", {sum, b.Constant(Floats({extra}))}));
  return std::move(b).BuildShared();
}

Graph IfGraph(bool constant_condition) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId condition = constant_condition
                                ? b.Constant(Tensor::Scalar(true))
                                : b.Input("c", DType::kBool, SymbolicShape::Scalar());
  const ValueId w = b.Constant(Floats({100}));
  b.Output(b.Op("If", {condition, x, w, x, w},
                Attrs({{"then_branch", Branch(1)}, {"else_branch", Branch(2)}})));
  return std::move(b).Build();
}

TEST(ShareConstantsWithBodiesTest, CapturedConstantsMoveIn) {
  const PassResult r = RunPass("share_constants_with_bodies", IfGraph(false));
  EXPECT_EQ(r.rewrites, 2);
  ASSERT_EQ(r.graph.nodes[0].inputs.size(), 3u);  // condition, x for each branch
  for (const auto& [name, body] : Subgraphs(r.graph.nodes[0])) {
    EXPECT_EQ(body->num_captures, 1);
    EXPECT_EQ(body->inputs.size(), 1u);
    EXPECT_THAT(Evaluate(*body, {Floats({1})})[0].values<float>(),
                ElementsAre(name == "then_branch" ? 102 : 103));
  }
}

TEST(SelectConstantBranchesTest, TheBranchTakesThePlaceOfTheIf) {
  const PassResult r = RunPass("select_constant_branches", IfGraph(true));
  EXPECT_EQ(r.rewrites, 1);
  EXPECT_EQ(r.Operators(), "Add Add");
  EXPECT_THAT(Evaluate(r.graph, {Floats({1})})[0].values<float>(), ElementsAre(102));
}

TEST(SelectConstantBranchesTest, AnUnknownConditionStays) {
  EXPECT_EQ(RunPass("select_constant_branches", IfGraph(false)).rewrites, 0);
}

TEST(SimplifiersTest, WorkInsideBodiesToo) {
  Graph graph = IfGraph(false);
  ASSERT_TRUE(InferShapes(graph).ok());
  const auto reports = RunPasses(graph, {});
  ASSERT_TRUE(reports.ok()) << reports.status();
  for (const PassReport& report : *reports) {
    if (report.name == "share_constants_with_bodies") {
      EXPECT_EQ(report.rewrites, 2);
    }
  }
}

TEST(RemoveIdentitiesTest, WhatHandsOnItsInputGoes) {
  GraphBuilder b;
  ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 4}));
  ValueId v = b.Op("Identity", {x});
  v = b.Op("Dropout", {v});
  v = b.Op("Cast", {v}, Attrs({{"to", int64_t{1}}}));
  v = b.Op("Reshape", {v, b.Constant(Integers({0, 4}))});
  v = b.Op("Transpose", {v}, Attrs({{"perm", std::vector<int64_t>{0, 1}}}));
  v = b.Op("Mul", {v, b.Constant(Floats({1}))});
  v = b.Op("Add", {b.Constant(Floats({0})), v});
  v = b.Op("Concat", {v}, Attrs({{"axis", int64_t{0}}}));
  b.Output(b.Op("Neg", {v}));
  const PassResult r = RunPass("remove_identities", std::move(b).Build());
  EXPECT_EQ(r.rewrites, 8);
  EXPECT_EQ(r.Operators(), "Neg");
  EXPECT_EQ(r.graph.nodes[0].inputs[0], x);
}

TEST(RemoveIdentitiesTest, WhatChangesSomethingStays) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 4}));
  b.Output(b.Op("Cast", {x}, Attrs({{"to", int64_t{11}}})));
  b.Output(b.Op("Reshape", {x, b.Constant(Integers({4, -1}))}));
  b.Output(b.Op("Transpose", {x}, Attrs({{"perm", std::vector<int64_t>{1, 0}}})));
  b.Output(b.Op("Mul", {x, b.Constant(Floats({2}))}));
  b.Output(b.Op("Sub", {b.Constant(Floats({0})), x}));
  // Broadcasts [n, 4] to [1, n, 4].
  b.Output(b.Op("Add", {x, b.Constant(Tensor::Of<float>(Shape{1, 1, 1}, {0}))}));
  // Reverses.
  b.Output(b.Op("Slice", {x, b.Constant(Integers({-1})), b.Constant(Integers({-1000})),
                          b.Constant(Integers({1})), b.Constant(Integers({-1}))}));
  EXPECT_EQ(RunPass("remove_identities", std::move(b).Build()).rewrites, 0);
}

TEST(RemoveDeadNodesTest, OnlyWhatOutputsDependOnStays) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  b.Input("unused", DType::kFloat, Vector("n"));
  b.Op("Neg", {b.Op("Add", {x, b.Constant(Floats({5}))})});
  b.Output(b.Op("Neg", {x}));
  const PassResult r = RunPass("remove_dead_nodes", std::move(b).Build());
  EXPECT_EQ(r.rewrites, 2);
  EXPECT_EQ(r.Operators(), "Neg");
  EXPECT_EQ(r.graph.values.size(), 3u);
  ASSERT_EQ(r.graph.inputs.size(), 2u);
  EXPECT_EQ(r.graph.values[r.graph.inputs[1]].name, "unused");
}

TEST(RunPassesTest, PositionsCutToTheLengthHaveTheLength) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("length"), 8}));
  const ValueId length =
      b.Op("Slice", {b.Op("Shape", {x}), b.Constant(Integers({0})), b.Constant(Integers({1}))});
  const ValueId positions = b.Constant(Tensor::Allocate(DType::kFloat, Shape{512, 8}));
  const ValueId cut = b.Op("Slice", {positions, b.Constant(Integers({0})), length});
  b.Output(b.Op("Add", {cut, x}));
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  EXPECT_EQ(graph.values[graph.outputs[0]].shape.ToString(), "[length,8]");
}

TEST(RunPassesTest, ADisabledPassIsSkippedAndAnUnknownOneRefused) {
  GraphBuilder b;
  b.Output(b.Op("Identity", {b.Input("x", DType::kFloat, Vector("n"))}));
  Graph graph = std::move(b).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  const auto reports = RunPasses(graph, {"remove_identities"});
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(graph.nodes.size(), 1u);
  const Status unknown = RunPasses(graph, {"remove_identites"}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("did you mean 'remove_identities'?"), std::string::npos);
  ASSERT_TRUE(RunPasses(graph, {}).ok());
  EXPECT_TRUE(graph.nodes.empty());
}

}  // namespace
}  // namespace chairlift
