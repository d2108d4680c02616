// Shapes through whole graphs: symbols, values that carry shapes, loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "graph/model_builder.h"

namespace chairlift {
namespace {

using ::chairlift::testing::FindValue;
using ::chairlift::testing::GraphProtoBuilder;
using ::chairlift::testing::kBool;
using ::chairlift::testing::kFloat;
using ::chairlift::testing::kInt64;
using ::chairlift::testing::ModelBuilder;

std::string ShapeOf(const StatusOr<ImportedModel>& model, const std::string& name) {
  if (!model.ok()) return Message(model.status());
  const Value* value = FindValue(model->graph, name);
  return value == nullptr ? "no such value" : value->shape.ToString();
}

TEST(InferShapesTest, ShapesComputedByTheModelKeepSymbols) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"batch", "seq", 8}).Output("y");
  m.Ints("heads", {2, 4}).Ints("zero", {0}).Ints("one", {1}).Ints("two", {2});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Slice", {"shape", "zero", "two"}, {"front"});
  m.Node("Concat", {"front", "heads"}, {"target"}).Int("axis", 0);
  m.Node("Reshape", {"x", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(m.Import(), "y"), "[batch,seq,2,4]");
}

TEST(InferShapesTest, DimensionsNobodyKnowsAreEqualToThemselves) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"n"}).Output("a").Output("b");
  m.Node("NonZero", {"x"}, {"z"});
  m.Node("Neg", {"z"}, {"a"});
  m.Node("Add", {"z", "a"}, {"b"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const SymbolicShape& a = FindValue(model->graph, "a")->shape;
  const SymbolicShape& b = FindValue(model->graph, "b")->shape;
  EXPECT_TRUE(a[1].Same(b[1]));
  EXPECT_FALSE(a[1].Same(FindValue(model->graph, "x")->shape[0]));
}

TEST(InferShapesTest, ANegatedSizeIsNotTheSize) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", "length"}).Output("y");
  m.Ints("one", {1}).Ints("end", {std::numeric_limits<int64_t>::max()});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "one"}, {"length"});
  m.Node("Neg", {"length"}, {"start"});
  m.Node("Slice", {"x", "start", "end", "one"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(FindValue(model->graph, "length")->elements);
  EXPECT_FALSE(FindValue(model->graph, "start")->elements);
}

TEST(InferShapesTest, PaddingComputedFromAFixedSizeIsKnown) {
  // To a multiple of 4, as PyTorch writes pad(): before and after by dimension, the last one first.
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 6}).Output("y");
  m.Ints("one", {1}).Ints("four", {4}).Ints("zeros", {0, 0, 0}).Ints("pairs", {-1, 2});
  m.Ints("minus", {-1}).Ints("zero", {0}).Ints("begin", {-9223372036854775807});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "one"}, {"width"});
  m.Node("Neg", {"width"}, {"negative"});
  m.Node("Mod", {"negative", "four"}, {"more"});
  m.Node("Concat", {"zero", "more", "zero", "zero"}, {"flat"}).Int("axis", 0);
  m.Node("Reshape", {"flat", "pairs"}, {"table"});
  m.Node("Slice", {"table", "minus", "begin", "zero", "minus"}, {"turned"});
  m.Node("Transpose", {"turned"}, {"columns"}).Ints("perm", {1, 0});
  m.Node("Reshape", {"columns", "minus"}, {"pads"});
  m.Node("Pad", {"x", "pads"}, {"y"});
  EXPECT_EQ(ShapeOf(m.Import(), "y"), "[batch,8]");
}

TEST(InferShapesTest, DeclaredOutputSaysWhatRulesCannotTell) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"n"}).Input("shape", kInt64, {2}).Output("y", kFloat, {"rows", 4});
  m.Node("Reshape", {"x", "shape"}, {"y"});
  EXPECT_EQ(ShapeOf(m.Import(), "y"), "[rows,4]");
}

TEST(InferShapesTest, SecondInferenceWithNumbersForSymbols) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"n", 3}).Output("y");
  m.Node("Concat", {"x", "x"}, {"y"}).Int("axis", 0);
  auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  Graph graph = model->graph;
  graph.values[graph.inputs[0]].shape = SymbolicShape(Shape{5, 3});
  ASSERT_TRUE(InferShapes(graph).ok());
  EXPECT_EQ(FindValue(graph, "y")->shape.ToString(), "[10,3]");
}

class LoopTest : public ::testing::Test {
 protected:
  // A loop over state s, started from x, with the body made by `add`.
  template <typename F>
  StatusOr<ImportedModel> Import(F add) {
    ModelBuilder m(13);
    m.Input("n", kInt64, {}).Input("c", kBool, {}).Input("x", kFloat, {"rows", 2});
    m.Output("final").Output("all");
    auto node = m.Node("Loop", {"n", "c", "x"}, {"final", "all"});
    GraphProtoBuilder body(node.Body("body"));
    body.Input("i", kInt64, {}).Input("keep", kBool, {}).Input("s", kFloat, {1, 2});
    body.Output("keep", kBool).Output("next", kFloat).Output("each", kFloat);
    add(body);
    return m.Import();
  }
};

TEST_F(LoopTest, StateThatKeepsItsShape) {
  const auto model = Import([](GraphProtoBuilder& body) {
    body.Node("Neg", {"s"}, {"next"});
    body.Node("Abs", {"s"}, {"each"});
  });
  EXPECT_EQ(ShapeOf(model, "final"), "[rows,2]");
  EXPECT_EQ(ShapeOf(model, "all"), "[all.0,rows,2]");
}

TEST_F(LoopTest, StateThatGrows) {
  const auto model = Import([](GraphProtoBuilder& body) {
    body.Node("Concat", {"s", "s"}, {"next"}).Int("axis", 0);
    body.Node("Abs", {"s"}, {"each"});
  });
  EXPECT_EQ(ShapeOf(model, "final"), "[final.0,2]");
  EXPECT_EQ(ShapeOf(model, "all"), "[all.0,all.1,2]");
}

TEST(InferLoopTest, CountAndConditionMayBeAbsent) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"n"}).Output("y");
  auto node = m.Node("Loop", {"", "", "x"}, {"y"});
  GraphProtoBuilder body(node.Body("body"));
  body.Input("i", kInt64, {}).Input("c", kBool, {}).Input("s", kFloat, {"n"});
  body.Output("c", kBool).Output("t", kFloat).Node("Neg", {"s"}, {"t"});
  EXPECT_EQ(ShapeOf(m.Import(), "y"), "[n]");
}

TEST(InferScanTest, ScansOverAnAxisAndStacksOnAnother) {
  ModelBuilder m(13);
  m.Input("h", kFloat, {3}).Input("x", kFloat, {3, "steps"}).Output("last").Output("ys");
  auto node = m.Node("Scan", {"h", "x"}, {"last", "ys"});
  node.Int("num_scan_inputs", 1).Ints("scan_input_axes", {1}).Ints("scan_output_axes", {-1});
  GraphProtoBuilder body(node.Body("body"));
  body.Input("a", kFloat, {}).Input("b", kFloat, {}).Output("sum", kFloat).Output("sum2", kFloat);
  body.Node("Add", {"a", "b"}, {"sum"});
  body.Node("Neg", {"sum"}, {"sum2"});
  const auto model = m.Import();
  EXPECT_EQ(ShapeOf(model, "last"), "[3]");
  EXPECT_EQ(ShapeOf(model, "ys"), "[3,steps]");
}

TEST(InferIfTest, BranchesThatDifferLeaveTheDimensionUnknown) {
  ModelBuilder m(13);
  m.Input("c", kBool, {}).Input("x", kFloat, {"n", 2}).Output("y");
  auto node = m.Node("If", {"c"}, {"y"});
  GraphProtoBuilder then(node.Body("then_branch"));
  then.Output("a", kFloat).Node("Concat", {"x", "x"}, {"a"}).Int("axis", 1);
  GraphProtoBuilder other(node.Body("else_branch"));
  other.Output("b", kFloat).Node("Neg", {"x"}, {"b"});
  EXPECT_EQ(ShapeOf(m.Import(), "y"), "[n,y.1]");
}

}  // namespace
}  // namespace chairlift
