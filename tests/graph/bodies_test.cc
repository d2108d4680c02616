// Nodes of control flow whose inputs and outputs do not fit their sub-graphs.
#include "graph/bodies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "graph/graph_builder.h"
#include "graph/model_builder.h"

namespace chairlift {
namespace {

using testing::GraphProtoBuilder;
using ::testing::HasSubstr;
using testing::kBool;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;

void ExpectRefused(const ModelBuilder& m, const std::string& why) {
  const auto model = m.Import();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(Message(model.status()), HasSubstr(why));
}

// An If whose condition is a constant or an input; `change` makes it wrong.
ModelBuilder Branching(bool constant, const std::function<void(onnx::NodeProto&)>& change) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {1, 4}).Input("z", kFloat, {1, 4}).Output("y");
  if (constant) {
    m.Tensor("c", kBool, {})->add_int32_data(1);
  } else {
    m.Input("c", kBool, {});
  }
  auto node = m.Node("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    GraphProtoBuilder branch(node.Body(name));
    branch.Node("Add", {"x", "x"}, {"sum"});
    branch.Output("sum");
  }
  change(*m.proto().mutable_node(0));
  return m;
}

TEST(BodiesTest, AnIfTakesItsConditionAlone) {
  for (const bool constant : {true, false}) {
    for (const int more : {1, 39}) {
      ExpectRefused(Branching(constant,
                              [&](onnx::NodeProto& node) {
                                for (int i = 0; i < more; ++i) node.add_input("z");
                              }),
                    "but the operator takes 1");
    }
  }
}

TEST(BodiesTest, ABranchTakesNoInputs) {
  for (const bool constant : {true, false}) {
    for (const int branch : {0, 1}) {
      ExpectRefused(Branching(constant,
                              [&](onnx::NodeProto& node) {
                                GraphProtoBuilder body(node.mutable_attribute(branch)->mutable_g());
                                body.Input("q", kFloat, {1, 4});
                              }),
                    "must not have inputs");
    }
  }
}

TEST(BodiesTest, AnIfHasTwoBranchesThatGiveItsOutputs) {
  for (const bool constant : {true, false}) {
    ExpectRefused(
        Branching(constant, [](onnx::NodeProto& node) { node.mutable_attribute()->RemoveLast(); }),
        "needs the sub-graphs then_branch and else_branch");
    ExpectRefused(Branching(constant,
                            [](onnx::NodeProto& node) {
                              auto* body = node.add_attribute();
                              *body = node.attribute(0);
                              body->set_name("body");
                            }),
                  "If of opset 17 has no attribute 'body'");
    ExpectRefused(Branching(constant, [](onnx::NodeProto& node) { node.add_output("more"); }),
                  "has 2 outputs, but its body gives 1");
    // Unused outputs at the end are no error.
    const auto model = Branching(constant, [](onnx::NodeProto& node) {
                         node.add_output("");
                         for (auto& branch : *node.mutable_attribute()) {
                           GraphProtoBuilder(branch.mutable_g()).Output("sum");
                         }
                       }).Import();
    EXPECT_TRUE(model.ok()) << model.status();
  }
}

// In a body types may not be known yet, so that nothing is refused while it is read.
TEST(BodiesTest, NodesInBodiesAreCheckedToo) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {1, 4}).Output("y").Output("z");
  m.Tensor("n", kInt64, {})->add_int64_data(3);
  auto loop = m.Node("Loop", {"n", "", "x"}, {"y"});
  GraphProtoBuilder body(loop.Body("body"));
  body.Input("i", kInt64, {}).Input("keep", kBool, {}).Input("s", 0, {});
  body.Tensor("yes", kBool, {})->add_int32_data(1);
  auto node = body.Node("If", {"yes", "s"}, {"t"});
  for (const char* name : {"then_branch", "else_branch"}) {
    GraphProtoBuilder branch(node.Body(name));
    branch.Node("Neg", {"s"}, {"o"});
    branch.Output("o");
  }
  body.Output("keep").Output("t");
  m.Node("Neg", {"y"}, {"z"});
  ExpectRefused(m, "but the operator takes 1");
}

TEST(BodiesTest, ALoopAndItsBodyAgree) {
  const auto with = [](int inputs, int states, int results, int outputs) {
    ModelBuilder m(17);
    m.Input("n", kInt64, {}).Input("c", kBool, {}).Input("x", kFloat, {2});
    auto* node = m.proto().add_node();
    node->set_op_type("Loop");
    for (int i = 0; i < inputs; ++i) node->add_input(i == 0 ? "n" : i == 1 ? "c" : "x");
    for (int i = 0; i < outputs; ++i) node->add_output(fmt::format("y{}", i));
    GraphProtoBuilder body(testing::NodeBuilder(node).Body("body"));
    body.Input("i", kInt64, {}).Input("keep", kBool, {});
    for (int i = 0; i < states; ++i) body.Input(fmt::format("s{}", i), kFloat, {2});
    body.Output("keep");
    body.Node("Neg", {"x"}, {"r"});
    for (int i = 0; i < results; ++i) body.Output("r");
    m.Output("y0");
    return m;
  };
  const auto fits = with(3, 1, 2, 2).Import();
  EXPECT_TRUE(fits.ok()) << fits.status();
  ExpectRefused(with(4, 1, 1, 1), "passes 4 inputs to a body that takes 3");
  ExpectRefused(with(2, 1, 1, 1), "passes 2 inputs to a body that takes 3");
  ExpectRefused(with(4, 2, 1, 1), "gives 2 outputs, fewer than the condition and 2 states");
  ExpectRefused(with(3, 1, 1, 2), "has 2 outputs, but its body gives 1");
}

TEST(BodiesTest, AScanAndItsBodyAgree) {
  const auto with = [](int inputs, int formal, int64_t scanned, int results, int outputs) {
    ModelBuilder m(17);
    m.Input("x", kFloat, {2, 3});
    auto* node = m.proto().add_node();
    node->set_op_type("Scan");
    for (int i = 0; i < inputs; ++i) node->add_input("x");
    for (int i = 0; i < outputs; ++i) node->add_output(fmt::format("y{}", i));
    testing::NodeBuilder builder(node);
    builder.Int("num_scan_inputs", scanned);
    GraphProtoBuilder body(builder.Body("body"));
    for (int i = 0; i < formal; ++i) body.Input(fmt::format("s{}", i), kFloat, {});
    body.Node("Neg", {"s0"}, {"r"});
    for (int i = 0; i < results; ++i) body.Output("r");
    m.Output("y0");
    return m;
  };
  const auto fits = with(2, 2, 1, 2, 2).Import();
  EXPECT_TRUE(fits.ok()) << fits.status();
  ExpectRefused(with(3, 2, 1, 2, 2), "passes 3 inputs, 1 of them scanned, to a body that takes 2");
  ExpectRefused(with(1, 1, 2, 1, 1), "passes 1 inputs, 2 of them scanned");
  ExpectRefused(with(1, 1, INT64_MIN, 1, 1), "of them scanned");
  ExpectRefused(with(3, 3, 1, 1, 1), "gives 1 outputs, fewer than its 2 states");
  ExpectRefused(with(2, 2, 1, 2, 3), "has 3 outputs, but its body gives 2");
}

TEST(BodiesTest, OtherOperatorsHaveNoBodies) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {2}).Output("y");
  auto node = m.Node("Neg", {"x"}, {"y"});
  GraphProtoBuilder body(node.Body("body"));
  body.Node("Abs", {"x"}, {"o"});
  body.Output("o");
  ExpectRefused(m, "Neg of opset 17 has no attribute 'body'");
}

}  // namespace
}  // namespace chairlift
