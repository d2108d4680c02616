// Functions that a model defines for itself, inlined where they are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/model_builder.h"

namespace chairlift {
namespace {

using onnx::AttributeProto;
using ::testing::ElementsAre;
using testing::FindValue;
using testing::GraphProtoBuilder;
using ::testing::HasSubstr;
using testing::kBool;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using testing::NodeBuilder;
using ::testing::UnorderedElementsAre;

using Names = std::initializer_list<std::string>;

// A function of domain "local".
class FunctionBuilder {
 public:
  FunctionBuilder(ModelBuilder& model, const std::string& name, Names inputs, Names outputs,
                  int opset = 17)
      : proto_(model.model().add_functions()) {
    proto_->set_domain("local");
    proto_->set_name(name);
    for (const std::string& input : inputs) proto_->add_input(input);
    for (const std::string& output : outputs) proto_->add_output(output);
    proto_->add_opset_import()->set_version(opset);
  }
  FunctionBuilder& Attribute(const std::string& name) {
    proto_->add_attribute(name);
    return *this;
  }
  // Fields that the protobuf classes may not know yet.
  FunctionBuilder& Default(const std::string& name, float value) {
    AttributeProto attribute;
    attribute.set_name(name);
    attribute.set_type(AttributeProto::FLOAT);
    attribute.set_f(value);
    Append(*proto_, 11, attribute.SerializeAsString());
    return *this;
  }
  FunctionBuilder& Overload(const std::string& overload) {
    Append(*proto_, 13, overload);
    return *this;
  }
  FunctionBuilder& Domain(const std::string& domain) {
    proto_->set_domain(domain);
    return *this;
  }
  NodeBuilder Node(const std::string& op_type, Names inputs, Names outputs) {
    auto* node = proto_->add_node();
    node->set_op_type(op_type);
    for (const std::string& name : inputs) node->add_input(name);
    for (const std::string& name : outputs) node->add_output(name);
    return NodeBuilder(node);
  }
  NodeBuilder Call(const std::string& function, Names inputs, Names outputs) {
    return Node(function, inputs, outputs).Domain("local");
  }

  template <typename Proto>
  static void Append(Proto& proto, int field, const std::string& bytes) {
    const std::string whole = proto.SerializeAsString() + static_cast<char>(field << 3 | 2) +
                              static_cast<char>(bytes.size()) + bytes;
    ASSERT_LT(bytes.size(), 128u);
    ASSERT_TRUE(proto.ParseFromString(whole));
  }

 private:
  onnx::FunctionProto* proto_;
};

ModelBuilder Model() {
  ModelBuilder m(17);
  m.model().set_ir_version(10);
  auto* import = m.model().add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  return m;
}

std::vector<std::string> OperatorsOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.def->name);
  return names;
}

std::vector<float> AlphasOf(const Graph& graph) {
  std::vector<float> alphas;
  for (const Node& node : graph.nodes) alphas.push_back(node.attributes.Float("alpha", -1));
  return alphas;
}

std::vector<std::string> OutputNamesOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueId id : graph.outputs) names.push_back(graph.values[id].name);
  return names;
}

void ExpectRefusal(const ModelBuilder& m, const std::string& why) {
  const auto model = m.Import();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(Message(model.status()), HasSubstr(why));
}

TEST(FunctionsTest, AttributesAreHandedOnThroughCalls) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y").Output("z");
  m.Node("outer", {"x"}, {"y"}).Domain("local").Float("a", 0.5f);
  m.Node("outer", {"x"}, {"z"}).Domain("local").Float("a", 0.75f);
  FunctionBuilder(m, "outer", {"x"}, {"y"})
      .Attribute("a")
      .Call("middle", {"x"}, {"y"})
      .Reference("b", AttributeProto::FLOAT, "a");
  FunctionBuilder(m, "middle", {"x"}, {"y"})
      .Attribute("b")
      .Call("inner", {"x"}, {"y"})
      .Reference("a", AttributeProto::FLOAT, "b");
  FunctionBuilder inner(m, "inner", {"x"}, {"y"});
  inner.Attribute("a")
      .Node("Constant", {}, {"c"})
      .Reference("value_float", AttributeProto::FLOAT, "a");
  inner.Node("LeakyRelu", {"x"}, {"r"}).Reference("alpha", AttributeProto::FLOAT, "a");
  inner.Node("Add", {"r", "c"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  ASSERT_THAT(OperatorsOf(graph), ElementsAre("LeakyRelu", "Add", "LeakyRelu", "Add"));
  EXPECT_THAT(AlphasOf(graph), ElementsAre(0.5f, -1, 0.75f, -1));
  EXPECT_THAT(graph.values[graph.nodes[1].inputs[1]].constant.values<float>(), ElementsAre(0.5f));
  EXPECT_THAT(graph.values[graph.nodes[3].inputs[1]].constant.values<float>(), ElementsAre(0.75f));
}

TEST(FunctionsTest, DefaultsHoldWhereTheCallIsSilent) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y").Output("z").Output("w");
  m.Node("f", {"x"}, {"y"}).Domain("local");
  m.Node("f", {"x"}, {"z"}).Domain("local").Float("a", 0.5f);
  m.Node("g", {"x"}, {"w"}).Domain("local");
  FunctionBuilder(m, "f", {"x"}, {"y"})
      .Default("a", 0.25f)
      .Node("LeakyRelu", {"x"}, {"y"})
      .Reference("alpha", AttributeProto::FLOAT, "a");
  // What the caller of g does not give, g does not hand on: f's own default holds.
  FunctionBuilder(m, "g", {"x"}, {"y"})
      .Attribute("b")
      .Call("f", {"x"}, {"y"})
      .Reference("a", AttributeProto::FLOAT, "b");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(AlphasOf(model->graph), ElementsAre(0.25f, 0.5f, 0.25f));
}

TEST(FunctionsTest, WhatIsGivenNeitherByTheCallNorByADefaultIsLeftOut) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("f", {"x"}, {"y"}).Domain("local");
  FunctionBuilder f(m, "f", {"x"}, {"y"});
  f.Attribute("a").Node("LeakyRelu", {"x"}, {"y"}).Reference("alpha", AttributeProto::FLOAT, "a");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(AlphasOf(model->graph), ElementsAre(-1));
  f.Node("Constant", {}, {"c"}).Reference("value_float", AttributeProto::FLOAT, "a");
  ExpectRefusal(m, "refers to attribute 'a' of the function, which neither the call nor a default");
}

TEST(FunctionsTest, OverloadsAreFunctionsOfTheirOwn) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y").Output("z").Output("w");
  for (const auto& [output, overload] :
       {std::pair("y", "one"), std::pair("z", "two"), std::pair("w", "")}) {
    auto* node = m.proto().add_node();
    node->set_op_type("f");
    node->set_domain("local");
    node->add_input("x");
    node->add_output(output);
    if (*overload != '\0') FunctionBuilder::Append(*node, 8, overload);
  }
  FunctionBuilder(m, "f", {"x"}, {"y"}).Overload("two").Node("Abs", {"x"}, {"y"});
  FunctionBuilder(m, "f", {"x"}, {"y"}).Overload("one").Node("Neg", {"x"}, {"y"});
  FunctionBuilder(m, "f", {"x"}, {"y"}).Node("Sqrt", {"x"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(OperatorsOf(model->graph), ElementsAre("Neg", "Abs", "Sqrt"));
  FunctionBuilder(m, "f", {"x"}, {"y"}).Overload("one").Node("Exp", {"x"}, {"y"});
  ExpectRefusal(m, "overload 'one', is defined a second time");
}

TEST(FunctionsTest, OutputsOfTheModelKeepTheirNames) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2});
  for (const char* name : {"neg", "same", "twice", "constant", "deep"}) m.Output(name);
  m.Node("f", {"x"}, {"neg", "same", "twice", "constant"}).Domain("local");
  m.Node("g", {"x"}, {"deep"}).Domain("local");
  FunctionBuilder f(m, "f", {"x"}, {"neg", "x", "neg", "c"});  // names of the model, too
  f.Node("Neg", {"x"}, {"neg"});
  f.Node("Constant", {}, {"c"}).Float("value_float", 1);
  FunctionBuilder(m, "g", {"neg"}, {"same"}).Call("h", {"neg"}, {"same"});
  FunctionBuilder(m, "h", {"x"}, {"y"}).Node("Abs", {"x"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(OutputNamesOf(model->graph), ElementsAre("neg", "same", "twice", "constant", "deep"));
  EXPECT_THAT(OperatorsOf(model->graph), ElementsAre("Neg", "Identity", "Identity", "Abs"));
}

TEST(FunctionsTest, OptionalInputsMayBeLeftOut) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Input("most", kFloat, {}).Output("y").Output("z");
  m.Node("clip", {"x", "", "most"}, {"y"}).Domain("local");
  m.Node("clip", {"x"}, {"z"}).Domain("local");
  FunctionBuilder(m, "clip", {"x", "low", "high"}, {"y"}).Node("Clip", {"x", "low", "high"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  EXPECT_THAT(graph.nodes[0].inputs, ElementsAre(graph.inputs[0], kNoValue, graph.inputs[1]));
  EXPECT_THAT(graph.nodes[1].inputs, ElementsAre(graph.inputs[0]));
  m.Node("clip", {"x", "most", "most", "most"}, {"w"}).Domain("local");
  ExpectRefusal(m, "takes 3 inputs");
}

TEST(FunctionsTest, AFunctionSeesNoNamesOfItsCaller) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Input("secret", kFloat, {2}).Output("y");
  m.Node("f", {"x"}, {"y"}).Domain("local");
  FunctionBuilder(m, "f", {"a"}, {"b"}).Node("Add", {"a", "secret"}, {"b"});
  ExpectRefusal(m, "reads 'secret', which nothing defines");
}

TEST(FunctionsTest, BodiesCallAndCaptureAcrossFunctions) {
  ModelBuilder m = Model();
  m.Input("c", kBool, {}).Input("x", kFloat, {2}).Output("y");
  m.Node("pick", {"c", "x"}, {"y"}).Domain("local").Float("a", 0.5f);
  FunctionBuilder pick(m, "pick", {"flag", "v"}, {"y"});
  pick.Attribute("a").Node("Neg", {"v"}, {"x"});  // not the model's x
  auto node = pick.Node("If", {"flag"}, {"y"});
  GraphProtoBuilder then(node.Body("then_branch"));
  then.Node("leaky", {"x"}, {"o"}).Domain("local").Reference("slope", AttributeProto::FLOAT, "a");
  then.Output("o");
  GraphProtoBuilder otherwise(node.Body("else_branch"));
  otherwise.Node("Abs", {"v"}, {"o"});
  otherwise.Output("o");
  FunctionBuilder(m, "leaky", {"v"}, {"o"})
      .Attribute("slope")
      .Node("LeakyRelu", {"v"}, {"o"})
      .Reference("alpha", AttributeProto::FLOAT, "slope");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  ASSERT_THAT(OperatorsOf(graph), ElementsAre("Neg", "If"));
  // The condition, then what else_branch and then_branch capture.
  EXPECT_THAT(graph.nodes[1].inputs,
              ElementsAre(graph.inputs[0], graph.inputs[1], graph.nodes[0].outputs[0]));
  EXPECT_THAT(AlphasOf(*Subgraphs(graph.nodes[1])[1].second), ElementsAre(0.5f));
}

// Names in a graph that a call hands over are the caller's, wherever the function uses it.
TEST(FunctionsTest, AGraphIsAnAttributeLikeOthers) {
  ModelBuilder m = Model();
  m.Input("c", kBool, {}).Input("x", kFloat, {2}).Input("own", kFloat, {2}).Output("y");
  auto call = m.Node("outer", {"c", "x"}, {"y"}).Domain("local");
  GraphProtoBuilder branch(call.Body("body_of_then"));
  branch.Node("Softmax", {"own"}, {"o"}).Reference("axis", AttributeProto::INT, "none");
  branch.Output("o");
  branch.proto().mutable_node(0)->clear_attribute();
  FunctionBuilder(m, "outer", {"c", "x"}, {"y"}, 12)
      .Attribute("body_of_then")
      .Call("inner", {"c", "x"}, {"y"})
      .Reference("branch", AttributeProto::GRAPH, "body_of_then");
  FunctionBuilder inner(m, "inner", {"c", "own"}, {"y"}, 12);  // another 'own'
  auto around = inner.Attribute("branch").Node("If", {"c"}, {"y"});
  GraphProtoBuilder then(around.Body("then_branch"));
  auto nested = then.Node("If", {"c"}, {"n"});
  nested.Reference("then_branch", AttributeProto::GRAPH, "branch");
  GraphProtoBuilder nested_else(nested.Body("else_branch"));
  nested_else.Node("Neg", {"own"}, {"q"});
  nested_else.Output("q");
  then.Output("n");
  GraphProtoBuilder otherwise(around.Body("else_branch"));
  otherwise.Node("Abs", {"own"}, {"q"});
  otherwise.Output("q");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  ASSERT_THAT(OperatorsOf(graph), ElementsAre("If"));
  const Graph& then_branch = *Subgraphs(graph.nodes[0])[1].second;
  // The condition; else_branch captures x, as the inner function's 'own'; then_branch the
  // condition, x and the model's own.
  const std::vector<ValueId>& inputs = graph.nodes[0].inputs;
  ASSERT_EQ(inputs.size(), 5u);
  EXPECT_THAT(std::vector(inputs.begin(), inputs.begin() + 2),
              ElementsAre(graph.inputs[0], graph.inputs[1]));
  EXPECT_THAT(std::vector(inputs.begin() + 2, inputs.end()),
              UnorderedElementsAre(graph.inputs[0], graph.inputs[1], graph.inputs[2]));
  const Graph& given = *Subgraphs(then_branch.nodes[0])[1].second;
  // In the caller's opset, 17: before 13 it would be flattened.
  EXPECT_THAT(OperatorsOf(given), ElementsAre("Softmax"));
  EXPECT_EQ(given.values[given.nodes[0].inputs[0]].name, "own");
}

TEST(FunctionsTest, AFunctionMayImportAnotherOpset) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2, 3, 4}).Output("y").Output("z");
  m.Node("old", {"x"}, {"y"}).Domain("local");
  m.Node("Softmax", {"x"}, {"z"}).Int("axis", 1);
  FunctionBuilder(m, "old", {"x"}, {"y"}, 11).Node("Softmax", {"x"}, {"y"}).Int("axis", 1);
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(OperatorsOf(model->graph),
              ElementsAre("Flatten", "Shape", "Softmax", "Reshape", "Softmax"));
  EXPECT_THAT(OutputNamesOf(model->graph), ElementsAre("y", "z"));
}

TEST(FunctionsTest, AFunctionStandsBeforeAnOperatorOfItsName) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y").Output("z");
  m.Node("Relu", {"x"}, {"y"});
  m.Node("Gelu", {"x"}, {"z"}).Domain("com.microsoft");
  FunctionBuilder(m, "Relu", {"x"}, {"y"}).Domain("ai.onnx").Node("Neg", {"x"}, {"y"});
  FunctionBuilder(m, "Gelu", {"x"}, {"y"}).Domain("com.microsoft").Node("Abs", {"x"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(OperatorsOf(model->graph), ElementsAre("Neg", "Abs"));
}

// Dimensions are named after values: two of one name would seem to be equal.
TEST(FunctionsTest, ValuesOfOneNameStayApart) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {"n"}).Input("z", kFloat, {"m"}).Output("a").Output("b").Output("call/t");
  m.Node("found", {"x"}, {"a"}).Domain("local").Name("call");
  m.Node("found", {"z"}, {"b"}).Domain("local").Name("call");
  m.Node("NonZero", {"z"}, {"call/t"}).Name("call");
  FunctionBuilder found(m, "found", {"x"}, {"y"});
  found.Node("NonZero", {"x"}, {"t"});
  found.Node("Neg", {"t"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto count = [&](int i) {
    return model->graph.values[model->graph.outputs[i]].shape[1].symbol();
  };
  EXPECT_NE(count(0), count(1));
  EXPECT_NE(count(0), count(2));
  EXPECT_NE(count(1), count(2));
}

// Likewise those of branches, which become part of the graph around them.
TEST(FunctionsTest, ValuesOfBranchesStayApart) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {"n"}).Input("z", kFloat, {"m"}).Output("a").Output("b");
  m.Tensor("yes", kBool, {})->add_int32_data(1);
  for (const auto& [input, output] : {std::pair("x", "a"), std::pair("z", "b")}) {
    auto node = m.Node("If", {"yes"}, {output}).Name("if");
    for (const char* name : {"then_branch", "else_branch"}) {
      GraphProtoBuilder branch(node.Body(name));
      branch.Node("NonZero", {input}, {"t"});
      branch.Output("t");
    }
  }
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  std::vector<std::string> counts;
  for (const Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) {
      counts.push_back(body->values[body->outputs[0]].shape[1].symbol());
    }
  }
  ASSERT_EQ(counts.size(), 4u);
  EXPECT_NE(counts[0], counts[2]);
  EXPECT_NE(counts[1], counts[3]);
}

TEST(FunctionsTest, CallsShareTheTensorsOfAFunction) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y").Output("z");
  m.Node("f", {"x"}, {"y"}).Domain("local");
  m.Node("f", {"x"}, {"z"}).Domain("local");
  FunctionBuilder f(m, "f", {"x"}, {"y"});
  auto* tensor =
      f.Node("Constant", {}, {"c"}).Attribute("value", AttributeProto::TENSOR)->mutable_t();
  tensor->set_data_type(kFloat);
  tensor->add_dims(2);
  for (const float v : {1.0f, 2.0f}) tensor->add_float_data(v);
  f.Node("Add", {"x", "c"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  EXPECT_EQ(graph.values[graph.nodes[0].inputs[1]].constant.raw(),
            graph.values[graph.nodes[1].inputs[1]].constant.raw());
}

TEST(FunctionsTest, RefusesAFunctionThatReachesItself) {
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("f", {"x"}, {"y"}).Domain("local");
  FunctionBuilder(m, "f", {"x"}, {"y"}).Call("g", {"x"}, {"y"});
  FunctionBuilder g(m, "g", {"x"}, {"y"});
  g.Node("Constant", {}, {"c"}).Int("value_int", 1);
  g.Node("Cast", {"c"}, {"flag"}).Int("to", kBool);
  auto node = g.Node("If", {"flag"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    GraphProtoBuilder branch(node.Body(name));
    branch.Node("f", {"x"}, {"o"}).Domain("local");
    branch.Output("o");
  }
  ExpectRefusal(m, "function f calls itself, directly or through others");
}

TEST(FunctionsTest, RefusesReferencesThatMeanNothing) {
  {
    ModelBuilder m = Model();
    m.Input("x", kFloat, {2}).Output("y");
    m.Node("LeakyRelu", {"x"}, {"y"}).Reference("alpha", AttributeProto::FLOAT, "a");
    ExpectRefusal(m, "refers to attribute 'a' of a function, but is outside of every function");
  }
  ModelBuilder m = Model();
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("f", {"x"}, {"y"}).Domain("local").Int("a", 1);
  FunctionBuilder(m, "f", {"x"}, {"y"})
      .Attribute("a")
      .Node("LeakyRelu", {"x"}, {"y"})
      .Reference("alpha", AttributeProto::FLOAT, "a");
  ExpectRefusal(m, "attribute 'alpha' is of type FLOAT, but 'a', which it refers to, is INT");
}

// The nodes of bodies count: the function holds one node, which holds many.
TEST(FunctionsTest, BodiesUnfoldWithinTheSameBounds) {
  ModelBuilder m = Model();
  m.Input("c", kBool, {}).Input("v0", kFloat, {2});
  FunctionBuilder f(m, "f", {"c", "x"}, {"y"});
  auto node = f.Node("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    GraphProtoBuilder branch(node.Body(name));
    for (int i = 0; i < 3000; ++i) branch.Node("Neg", {"x"}, {fmt::format("o{}", i)});
    branch.Output("o0");
  }
  for (int i = 0; i < 40; ++i) {
    m.Node("f", {"c", fmt::format("v{}", i)}, {fmt::format("v{}", i + 1)}).Domain("local");
  }
  m.Output("v40");
  const auto model = m.Import();
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted) << model.status();
}

}  // namespace
}  // namespace chairlift
