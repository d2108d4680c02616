// The verifier refuses graphs that passes must not make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/ir.h"

namespace chairlift {
namespace verify_test {

using ::testing::HasSubstr;

// y = x + w.
Graph Sum() {
  Graph graph;
  const SymbolicShape shape(Shape{2});
  const ValueId x = graph.AddValue({.name = "x", .dtype = DType::kFloat, .shape = shape});
  const ValueId w = graph.AddValue({.name = "w",
                                    .dtype = DType::kFloat,
                                    .shape = shape,
                                    .constant = Tensor::Of<float>({2}, {1, 2})});
  const ValueId y = graph.AddValue({.name = "y", .dtype = DType::kFloat, .shape = shape});
  graph.inputs = {x};
  graph.outputs = {y};
  graph.nodes.push_back({"sum", OperatorRegistry::Builtin().Find("", "Add"), {}, {x, w}, {y}});
  return graph;
}

void ExpectRefused(const Graph& graph, const std::string& message) {
  const Status status = Verify(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr(message));
}

TEST(VerifyTest, TakesAWellFormedGraph) { EXPECT_TRUE(Verify(Sum()).ok()); }

TEST(VerifyTest, RefusesIdsThatDoNotExist) {
  for (const ValueId id : {ValueId{-2}, ValueId{3}, ValueId{1000}}) {
    Graph graph = Sum();
    graph.nodes[0].inputs[0] = id;
    ExpectRefused(graph, "does not exist");
    graph = Sum();
    graph.outputs[0] = id;
    ExpectRefused(graph, "does not exist");
  }
}

TEST(VerifyTest, RefusesASecondDefinition) {
  Graph graph = Sum();
  graph.nodes.push_back(graph.nodes[0]);
  ExpectRefused(graph, "second time");
  graph = Sum();
  graph.nodes[0].outputs[0] = 1;  // the constant
  ExpectRefused(graph, "second time");
}

TEST(VerifyTest, RefusesReadingBeforeDefinition) {
  Graph graph = Sum();
  graph.nodes[0].inputs[0] = 2;
  ExpectRefused(graph, "before it is defined");
  graph = Sum();
  graph.nodes.clear();
  ExpectRefused(graph, "before it is defined");
}

TEST(VerifyTest, RefusesWrongArity) {
  Graph graph = Sum();
  graph.nodes[0].inputs.push_back(0);
  ExpectRefused(graph, "3 inputs");
  graph = Sum();
  graph.nodes[0].outputs.clear();
  ExpectRefused(graph, "0 outputs");
  graph = Sum();
  graph.nodes[0].inputs[1] = kNoValue;
  ExpectRefused(graph, "required but absent");
  graph = Sum();
  graph.nodes[0].outputs[0] = kNoValue;
  ExpectRefused(graph, "output 0 is absent");
}

TEST(VerifyTest, RefusesElementTypesTheOperatorDoesNotTake) {
  Graph graph = Sum();
  graph.values[0].dtype = DType::kBool;
  ExpectRefused(graph, "bool");
}

TEST(VerifyTest, RefusesConstantsThatBelieTheirValue) {
  Graph graph = Sum();
  graph.values[1].shape = SymbolicShape(Shape{3});
  ExpectRefused(graph, "'w'");
  graph = Sum();
  graph.values[1].dtype = DType::kDouble;
  ExpectRefused(graph, "'w'");
}

TEST(VerifyTest, RefusesANodeWithoutOperator) {
  Graph graph = Sum();
  graph.nodes[0].def = nullptr;
  ExpectRefused(graph, "no operator");
}

}  // namespace verify_test
}  // namespace chairlift
