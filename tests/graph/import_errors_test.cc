// Files that are no model we can run: each ends in an error that names what is wrong, quickly.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "graph/model_builder.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

using ::chairlift::testing::GraphProtoBuilder;
using ::chairlift::testing::kBool;
using ::chairlift::testing::kFloat;
using ::chairlift::testing::kInt4;
using ::chairlift::testing::kInt64;
using ::chairlift::testing::kUInt4;
using ::chairlift::testing::ModelBuilder;
using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectRefused(const ModelBuilder& m, const ::testing::Matcher<const std::string&>& message) {
  const auto model = m.Import();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(Message(model.status()), message);
}

ModelBuilder OneNode(int opset, const std::string& op_type) {
  ModelBuilder m(opset);
  m.Input("x", kFloat, {2, 3}).Output("y");
  m.Node(op_type, {"x"}, {"y"}).Name("only");
  return m;
}

TEST(ImportErrorsTest, WhatGitKeepsInsteadOfTheFile) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n";
  const auto model = ImportOnnx(std::as_bytes(std::span(pointer.data(), pointer.size())), {});
  EXPECT_THAT(Message(model.status()), HasSubstr("git lfs pull"));
}

TEST(ImportErrorsTest, TruncatedAtEveryLength) {
  const std::string whole = OneNode(13, "Relu").Bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string part = whole.substr(0, length);
    const auto model = ImportOnnx(std::as_bytes(std::span(part.data(), part.size())), {});
    if (model.ok()) {
      // A cut between two fields of the model leaves a smaller one.
      EXPECT_LE(model->graph.nodes.size(), 1u) << length;
    } else {
      EXPECT_FALSE(Message(model.status()).empty());
    }
  }
}

TEST(ImportErrorsTest, NotAModel) {
  const std::string text = "hello, world";
  EXPECT_FALSE(ImportOnnx(std::as_bytes(std::span(text.data(), text.size())), {}).ok());
  EXPECT_FALSE(ImportOnnx({}, {}).ok());
  EXPECT_FALSE(ImportOnnxFile("/nonexistent/model.onnx").ok());
  EXPECT_FALSE(ImportOnnxFile("/").ok());
}

TEST(ImportErrorsTest, LargerThanAllowed) {
  const std::string bytes = OneNode(13, "Relu").Bytes();
  const auto model = ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())),
                                {.external_data_dir = {}, .max_model_bytes = 10});
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ImportErrorsTest, UnknownOperatorIsNamedWithNodeDomainAndOpset) {
  ExpectRefused(OneNode(13, "Frobnicate"), AllOf(HasSubstr("only"), HasSubstr("Frobnicate"),
                                                 HasSubstr("ai.onnx"), HasSubstr("13")));
}

TEST(ImportErrorsTest, OperatorOfAnUnknownDomain) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("Relu", {"x"}, {"y"}).Domain("com.example");
  ExpectRefused(m, HasSubstr("imports no opset of domain 'com.example'"));
  auto* import = m.model().add_opset_import();
  import->set_domain("com.example");
  import->set_version(1);
  ExpectRefused(m, AllOf(HasSubstr("com.example"), HasSubstr("not supported")));
}

TEST(ImportErrorsTest, OurOwnFusedOperatorsAreNotForFiles) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("Relu", {"x"}, {"y"}).Domain("chairlift");
  auto* import = m.model().add_opset_import();
  import->set_domain("chairlift");
  import->set_version(1);
  ExpectRefused(m, HasSubstr("not supported"));
}

TEST(ImportErrorsTest, OpsetsOutsideTheRange) {
  for (const int opset : {-1, 0, 29, 99}) {
    ExpectRefused(OneNode(opset, "Relu"),
                  AllOf(HasSubstr(fmt::format("opset {}", opset)), HasSubstr("not supported")));
  }
}

TEST(ImportErrorsTest, NoOpset) {
  ModelBuilder m = OneNode(13, "Relu");
  m.model().clear_opset_import();
  ExpectRefused(m, HasSubstr("imports no opset"));
}

TEST(ImportErrorsTest, Cycle) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("b");
  m.Node("Add", {"x", "b"}, {"a"}).Name("one");
  m.Node("Neg", {"a"}, {"b"}).Name("two");
  ExpectRefused(m, AllOf(HasSubstr("cycle"), HasSubstr("one")));
}

TEST(ImportErrorsTest, NodeThatReadsItself) {
  ModelBuilder m(13);
  m.Output("a");
  m.Node("Neg", {"a"}, {"a"}).Name("self");
  ExpectRefused(m, AllOf(HasSubstr("cycle"), HasSubstr("self")));
}

TEST(ImportErrorsTest, CycleThroughABody) {
  ModelBuilder m(13);
  m.Input("cond", kBool, {}).Output("y");
  auto node = m.Node("If", {"cond"}, {"y"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    GraphProtoBuilder body(node.Body(branch));
    body.Output("v", kFloat).Node("Neg", {"y"}, {"v"});
  }
  ExpectRefused(m, HasSubstr("cycle"));
}

TEST(ImportErrorsTest, UndefinedName) {
  ModelBuilder m(13);
  m.Output("y");
  m.Node("Relu", {"nowhere"}, {"y"}).Name("n");
  ExpectRefused(m, AllOf(HasSubstr("'n'"), HasSubstr("'nowhere'")));
}

TEST(ImportErrorsTest, UndefinedOutput) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("nowhere");
  ExpectRefused(m, HasSubstr("'nowhere'"));
}

TEST(ImportErrorsTest, NameDefinedTwice) {
  ModelBuilder by_nodes = OneNode(13, "Relu");
  by_nodes.Node("Neg", {"x"}, {"y"});
  ExpectRefused(by_nodes, HasSubstr("'y' is defined a second time"));
  ModelBuilder by_input = OneNode(13, "Relu");
  by_input.Input("y", kFloat, {2});
  ExpectRefused(by_input, HasSubstr("'y' is defined a second time"));
  ModelBuilder inputs(13);
  inputs.Input("x", kFloat, {2}).Input("x", kFloat, {2}).Output("x");
  ExpectRefused(inputs, HasSubstr("listed twice"));
  ModelBuilder tensors(13);
  tensors.Floats("w", {1}, {1}).Floats("w", {1}, {2}).Output("w");
  ExpectRefused(tensors, HasSubstr("'w' is defined a second time"));
}

TEST(ImportErrorsTest, MistypedAttribute) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("Concat", {"x"}, {"y"}).Float("axis", 0);
  ExpectRefused(m, AllOf(HasSubstr("axis"), HasSubstr("FLOAT")));
}

TEST(ImportErrorsTest, AttributeThatOnnxDoesNotHave) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("Relu", {"x"}, {"y"}).Int("slope_of_hill", 0);
  ExpectRefused(m, HasSubstr("slope_of_hill"));
}

// Some programs read 2 as true, others as false.
TEST(ImportErrorsTest, FlagThatIsNeitherZeroNorOne) {
  for (const int64_t flag : {-1, 0, 1, 2}) {
    ModelBuilder m(17);
    m.Input("x", kFloat, {2, 3}).Output("y");
    m.Node("ReduceMean", {"x"}, {"y"}).Ints("axes", {1}).Int("keepdims", flag);
    if (flag == 0 || flag == 1) {
      EXPECT_TRUE(m.Import().ok()) << flag;
    } else {
      ExpectRefused(m, HasSubstr(fmt::format("'keepdims' is {}; it must be 0 or 1", flag)));
    }
  }
}

// Also where the rank of what it transposes is not known; passes read it without looking.
TEST(ImportErrorsTest, PermutationsThatAreNone) {
  for (const bool ranked : {false, true}) {
    for (const auto& [first, second] :
         std::initializer_list<std::pair<int64_t, int64_t>>{{-1, 0}, {0, 0}, {0, 2}, {1, -2}}) {
      ModelBuilder m(17);
      m.Input("x", kFloat, {2, 3}).Input("shape", kInt64, {"rank"}).Output("y");
      m.Node("Reshape", {"x", "shape"}, {"open"});
      m.Node("Transpose", {ranked ? "x" : "open"}, {"y"}).Ints("perm", {first, second});
      ExpectRefused(m, HasSubstr("does not have each axis from 0 to 1 once"));
    }
  }
}

// Without it ReduceMean of opset 18 is the mean of everything.
TEST(ImportErrorsTest, AttributeThatBecameAnInput) {
  const auto build = [](int opset) {
    ModelBuilder m(opset);
    m.Input("x", kFloat, {2, 3});
    m.Node("ReduceMean", {"x"}, {"y"}).Ints("axes", {1});
    m.Output("y");
    return m;
  };
  EXPECT_TRUE(build(17).Import().ok());
  auto newer = build(18);
  ExpectRefused(newer, AllOf(HasSubstr("ReduceMean of opset 18 has no attribute 'axes'"),
                             HasSubstr("it has keepdims, noop_with_empty_axes")));
}

// As onnx's checker and ONNX Runtime do: what a node says must have an effect.
TEST(ImportErrorsTest, AttributesThatAnOperatorDoesNotHave) {
  const auto refused = [](int opset, const char* op, const char* attribute,
                          const char* domain = "") {
    ModelBuilder m(opset);
    auto* contrib = m.model().add_opset_import();
    contrib->set_domain("com.microsoft");
    contrib->set_version(1);
    m.Input("x", kFloat, {2, 3}).Output("y");
    m.Node(op, {"x"}, {"y"}).Domain(domain).Int(attribute, 1);
    const auto model = m.Import();
    return model.ok() ? std::string() : Message(model.status());
  };
  EXPECT_THAT(refused(17, "Relu", "alpha"), HasSubstr("Relu of opset 17 has no attribute 'alpha'"));
  EXPECT_THAT(refused(17, "Relu", "nonsense"), HasSubstr("no attribute 'nonsense'"));
  EXPECT_THAT(refused(17, "Softmax", "keepdims"), HasSubstr("it has axis"));
  EXPECT_THAT(refused(17, "ReduceMax", "noop_with_empty_axes"), HasSubstr("of opset 17"));
  EXPECT_EQ(refused(13, "Softmax", "axis"), "");
  EXPECT_EQ(refused(17, "Relu", "__mark_of_a_tool"), "");
  EXPECT_THAT(refused(17, "Gelu", "approximate", "com.microsoft"),
              HasSubstr("Gelu of opset 1 has no attribute 'approximate'"));
}

TEST(ImportErrorsTest, AttributeGivenTwice) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("Concat", {"x"}, {"y"}).Int("axis", 0).Int("axis", 0);
  ExpectRefused(m, HasSubstr("given twice"));
}

TEST(ImportErrorsTest, MistypedValue) {
  ModelBuilder input(13);
  input.Input("x", kInt64, {2}).Input("z", kFloat, {2}).Output("y");
  input.Node("Add", {"x", "z"}, {"y"}).Name("sum");
  ExpectRefused(input, HasSubstr("sum"));
  ModelBuilder output(13);
  output.Input("x", kFloat, {2}).Output("y", kInt64);
  output.Node("Neg", {"x"}, {"y"});
  ExpectRefused(output, AllOf(HasSubstr("int64"), HasSubstr("float32")));
}

TEST(ImportErrorsTest, ValuesThatAreNotTensors) {
  ModelBuilder sequence(13);
  auto* info = sequence.proto().add_input();
  info->set_name("x");
  info->mutable_type()->mutable_sequence_type();
  ExpectRefused(sequence, HasSubstr("sequence"));
  ModelBuilder complex(13);
  complex.Input("x", onnx::TensorProto::COMPLEX64, {1}).Output("x");
  ExpectRefused(complex, HasSubstr("complex64"));
  ModelBuilder strange(13);
  strange.Input("x", 4711, {1}).Output("x");
  ExpectRefused(strange, HasSubstr("4711"));
  ModelBuilder fp8(19);
  fp8.Input("x", 17, {1}).Output("x");
  ExpectRefused(fp8, HasSubstr("float8e4m3fn"));
  const std::vector<std::pair<int, std::string>> later = {{21, "uint4"},      {22, "int4"},
                                                          {23, "float4e2m1"}, {24, "float8e8m0"},
                                                          {26, "int2"},       {28, "float6e3m2"}};
  for (const auto& [number, name] : later) {
    ModelBuilder narrow(28);
    narrow.Input("x", number, {1}).Output("x");
    ExpectRefused(narrow, HasSubstr(name));
  }
}

TEST(ImportErrorsTest, SparseInitialiser) {
  ModelBuilder m(13);
  m.proto().add_sparse_initializer()->mutable_values()->set_name("s");
  ExpectRefused(m, AllOf(HasSubstr("sparse"), HasSubstr("'s'")));
}

TEST(ImportErrorsTest, TensorWithFewerElementsThanItsShape) {
  ModelBuilder m(13);
  m.Floats("w", {2, 3}, {1, 2, 3}).Output("w");
  ExpectRefused(m, AllOf(HasSubstr("'w'"), HasSubstr("6")));
  ModelBuilder raw(13);
  raw.Tensor("w", kFloat, {1})->set_raw_data("abc");
  raw.Output("w");
  ExpectRefused(raw, HasSubstr("4 bytes"));
}

TEST(ImportErrorsTest, HugeDimensions) {
  for (const auto& dims : std::vector<std::vector<int64_t>>{{int64_t{1} << 62},
                                                            {1 << 30, 1 << 30, 1 << 30},
                                                            {int64_t{1} << 62, int64_t{1} << 62, 0},
                                                            {-5}}) {
    ModelBuilder tensor(13);
    auto* w = tensor.Tensor("w", kFloat, {});
    for (const int64_t d : dims) w->add_dims(d);
    tensor.Output("w");
    ExpectRefused(tensor, HasSubstr("'w'"));
  }
  ModelBuilder input(13);
  input.Input("x", kFloat, {int64_t{1} << 40, int64_t{1} << 40}).Output("x");
  ExpectRefused(input, HasSubstr("'x'"));
  ModelBuilder computed(13);
  computed.Input("x", kFloat, {1 << 20, 1}).Input("z", kFloat, {1, 1 << 20}).Output("y");
  computed.Node("Add", {"x", "z"}, {"y"}).Name("outer");
  ExpectRefused(computed, HasSubstr("outer"));
}

TEST(ImportErrorsTest, TooManyDimensions) {
  ModelBuilder input(13);
  input.Input("x", kFloat, std::vector<testing::DeclaredDim>(33, int64_t{1})).Output("x");
  ExpectRefused(input, HasSubstr("33 dimensions"));
  ModelBuilder tensor(13);
  auto* w = tensor.Tensor("w", kFloat, {});
  for (int i = 0; i < 1000; ++i) w->add_dims(1);
  w->add_float_data(1);
  tensor.Output("w");
  ExpectRefused(tensor, HasSubstr("1000 dimensions"));
}

// The node's inputs alone would take gigabytes to look at.
TEST(ImportErrorsTest, TooManyInputs) {
  ModelBuilder m(13);
  m.Input("x", kFloat, std::vector<testing::DeclaredDim>(32, std::string(256, 'n'))).Output("y");
  auto* node = m.proto().add_node();
  node->set_op_type("Concat");
  const std::string x(1, 'x');
  for (int i = 0; i < 50'000; ++i) node->add_input(x);
  node->add_output("y");
  testing::NodeBuilder(node).Int("axis", 0);
  ExpectRefused(m, HasSubstr("too many inputs"));
}

TEST(ImportErrorsTest, FunctionThatCallsItself) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("F", {"x"}, {"y"}).Domain("d");
  auto* function = m.model().add_functions();
  function->set_name("F");
  function->set_domain("d");
  function->add_input("a");
  function->add_output("b");
  auto* node = function->add_node();
  node->set_op_type("F");
  node->set_domain("d");
  node->add_input("a");
  node->add_output("b");
  ExpectRefused(m, HasSubstr("calls itself"));
}

TEST(ImportErrorsTest, FunctionsThatUnfoldIntoTooMuch) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("F0", {"x"}, {"y"}).Domain("d");
  for (int level = 0; level < 15; ++level) {
    auto* function = m.model().add_functions();
    function->set_name(fmt::format("F{}", level));
    function->set_domain("d");
    function->add_opset_import()->set_version(13);
    function->add_input("v0");
    function->add_output("v8");
    for (int i = 0; i < 8; ++i) {
      auto* node = function->add_node();
      node->set_op_type(level == 14 ? "Neg" : fmt::format("F{}", level + 1));
      if (level != 14) node->set_domain("d");
      node->add_input(fmt::format("v{}", i));
      node->add_output(fmt::format("v{}", i + 1));
    }
  }
  ExpectRefused(m, HasSubstr("expand to more than"));
}

// Each level infers its body several times; the work must not grow with the power of the depth.
TEST(ImportErrorsTest, DeeplyNestedLoopsEndSoon) {
  ModelBuilder m(13);
  m.Input("n", kInt64, {}).Input("c", kBool, {}).Input("x", kFloat, {1}).Output("y");
  GraphProtoBuilder graph(&m.proto());
  std::string state = "x";
  std::string result = "y";
  std::vector<onnx::GraphProto*> bodies = {&m.proto()};
  for (int depth = 0; depth < 25; ++depth) {
    GraphProtoBuilder outer(bodies.back());
    auto node = outer.Node("Loop", {"n", "c", state}, {result});
    GraphProtoBuilder body(node.Body("body"));
    body.Input(fmt::format("i{}", depth), kInt64, {})
        .Input(fmt::format("c{}", depth), kBool, {})
        .Input(fmt::format("s{}", depth), kFloat, {1});
    body.Output(fmt::format("c{}", depth), kBool).Output(fmt::format("grown{}", depth), kFloat);
    body.Node("Concat", {fmt::format("s{}", depth), fmt::format("r{}", depth)},
              {fmt::format("grown{}", depth)})
        .Int("axis", 0);
    state = fmt::format("s{}", depth);
    result = fmt::format("r{}", depth);
    bodies.push_back(&body.proto());
  }
  GraphProtoBuilder(bodies.back()).Node("Neg", {state}, {result});
  const auto model = m.Import();
  if (!model.ok()) {
    EXPECT_THAT(Message(model.status()), HasSubstr("Loop"));
  }
}

TEST(ImportErrorsTest, BranchesOfDifferentTypes) {
  ModelBuilder m(13);
  m.Input("cond", kBool, {}).Input("x", kFloat, {2}).Output("y");
  auto node = m.Node("If", {"cond"}, {"y"}).Name("choose");
  GraphProtoBuilder then(node.Body("then_branch"));
  then.Output("a").Node("Neg", {"x"}, {"a"});
  GraphProtoBuilder other(node.Body("else_branch"));
  other.Output("b").Node("Cast", {"x"}, {"b"}).Int("to", kInt64);
  ExpectRefused(m, AllOf(HasSubstr("choose"), HasSubstr("branches")));
}

TEST(ImportErrorsTest, ControlFlowWithoutABody) {
  ModelBuilder branches(13);
  branches.Input("c", kBool, {}).Output("y").Node("If", {"c"}, {"y"}).Name("bare");
  ExpectRefused(branches, AllOf(HasSubstr("bare"), HasSubstr("sub-graph")));
  ModelBuilder loop(13);
  loop.Input("x", kFloat, {2}).Output("y").Node("Loop", {"", "", "x"}, {"y"}).Name("bare");
  ExpectRefused(loop, AllOf(HasSubstr("bare"), HasSubstr("sub-graph")));
  ModelBuilder scan(13);
  scan.Input("x", kFloat, {2}).Output("y").Node("Scan", {"x"}, {"y"}).Name("bare");
  ExpectRefused(scan, AllOf(HasSubstr("bare"), HasSubstr("sub-graph")));
}

TEST(ImportErrorsTest, BodyWithTooFewOutputs) {
  ModelBuilder m(13);
  m.Input("n", kInt64, {}).Input("x", kFloat, {2}).Output("y");
  auto node = m.Node("Loop", {"n", "", "x"}, {"y"}).Name("loop");
  GraphProtoBuilder body(node.Body("body"));
  body.Input("i", kInt64, {}).Input("c", kBool, {}).Input("s", kFloat, {2});
  body.Output("c", kBool);
  ExpectRefused(m, HasSubstr("loop"));
}

// Elements of 4 bits are kept in bytes, which is the same to those operators alone that say so.
ModelBuilder WithFourBits(std::initializer_list<int64_t> dims, const std::string& bytes,
                          int type = kInt4) {
  ModelBuilder m(21);
  m.Tensor("w", type, dims)->set_raw_data(bytes);
  m.Floats("s", {}, {0.5f});
  return m;
}

TEST(ImportErrorsTest, FourBitsOfTheWrongSize) {
  const auto refused = [](std::initializer_list<int64_t> dims, const std::string& bytes,
                          const std::string& message) {
    ModelBuilder m = WithFourBits(dims, bytes);
    m.Output("y").Node("DequantizeLinear", {"w", "s"}, {"y"});
    ExpectRefused(m, AllOf(HasSubstr("'w'"), HasSubstr(message)));
  };
  refused({3, 3}, "1234", "int4 of shape [3,3], two to a byte: uint8 of shape [5] takes 5 bytes");
  refused({3, 3}, "123456", "but the file holds 6");
  refused({}, "", "but the file holds 0");
  refused({-3, 3}, "12345", "negative dimension");
  refused({int64_t{1} << 62, 4}, "12345", "larger than the limit");
  refused({std::numeric_limits<int64_t>::max()}, "12345", "larger than the limit");
  ModelBuilder numbers(21);  // one of them holds two elements
  auto* tensor = numbers.Output("y").Tensor("w", kUInt4, {3});
  for (const int v : {1, 2, 3}) tensor->add_int32_data(v);
  numbers.Floats("s", {}, {1}).Node("DequantizeLinear", {"w", "s"}, {"y"});
  ExpectRefused(numbers, HasSubstr("uint4 of shape [3], two to a byte"));
}

TEST(ImportErrorsTest, FourBitsReadByOtherOperators) {
  for (const char* op : {"Identity", "Transpose", "Cast", "QuantizeLinear"}) {
    ModelBuilder m = WithFourBits({2, 2}, "12");
    m.Output("y").Node(op, {"w"}, {"y"}).Name("only");
    ExpectRefused(m, AllOf(HasSubstr("only"), HasSubstr("'w' has elements of 4 bits")));
  }
}

TEST(ImportErrorsTest, FourBitsAsAnOutput) {
  for (const int declared : {0, static_cast<int>(onnx::TensorProto::INT8)}) {
    ModelBuilder m = WithFourBits({2, 2}, "12");
    m.Output("w", declared);
    ExpectRefused(m, HasSubstr("output 'w' has elements of 4 bits"));
  }
}

TEST(ImportErrorsTest, FourBitsReadInABranchOrAFunction) {
  ModelBuilder m = WithFourBits({2, 2}, "12");
  auto node = m.Input("c", kBool, {}).Output("y").Node("If", {"c"}, {"y"}).Name("choose");
  GraphProtoBuilder then(node.Body("then_branch"));
  then.Output("a").Node("DequantizeLinear", {"w", "s"}, {"a"});
  GraphProtoBuilder other(node.Body("else_branch"));
  other.Output("b").Node("Cast", {"w"}, {"b"}).Int("to", kFloat).Name("inside");
  ExpectRefused(m, AllOf(HasSubstr("choose"), HasSubstr("inside"), HasSubstr("of 4 bits")));

  ModelBuilder through = WithFourBits({2, 2}, "12");
  auto* import = through.model().add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  auto* function = through.model().add_functions();
  function->set_name("DequantizeLinear");  // of another domain
  function->set_domain("local");
  function->add_input("x");
  function->add_output("x");
  through.Output("y").Node("DequantizeLinear", {"w"}, {"z"}).Domain("local");
  through.Node("Identity", {"z"}, {"y"}).Name("after");
  ExpectRefused(through, AllOf(HasSubstr("after"), HasSubstr("of 4 bits")));
}

}  // namespace
}  // namespace chairlift
