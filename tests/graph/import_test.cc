// What a well-formed ONNX file becomes.
#include "graph/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "graph/model_builder.h"

namespace chairlift {
namespace {

using ::chairlift::testing::FindValue;
using ::chairlift::testing::GraphProtoBuilder;
using ::chairlift::testing::kBool;
using ::chairlift::testing::kFloat;
using ::chairlift::testing::kInt64;
using ::chairlift::testing::ModelBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The operators of the graph's nodes, in order.
std::vector<std::string> Operators(const Graph& graph) {
  std::vector<std::string> out;
  for (const Node& node : graph.nodes) out.push_back(node.def->name);
  return out;
}

TEST(ImportTest, KeepsSymbolsOfDeclaredShapes) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"batch", 3}).Output("y", kFloat);
  m.Node("Relu", {"x"}, {"y"}).Name("act");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->opset, 13);
  EXPECT_THAT(Operators(model->graph), ElementsAre("Relu"));
  EXPECT_EQ(model->graph.nodes[0].name, "act");
  EXPECT_EQ(FindValue(model->graph, "y")->shape.ToString(), "[batch,3]");
}

// As exporters name what a model with open sizes computes: by the whole expression.
TEST(ImportTest, DimensionNamesOfAnyLengthAreToldApart) {
  const std::string common = "8*" + std::string(400, 'n');
  ModelBuilder m(13);
  m.Input("a", kFloat, {common + "1"}).Input("b", kFloat, {common + "1"});
  m.Input("c", kFloat, {common + "2"});
  for (const char* name : {"a", "b", "c"}) m.Output(name);
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto dim = [&](const char* name) { return FindValue(model->graph, name)->shape[0]; };
  EXPECT_TRUE(dim("a").Same(dim("b")));
  EXPECT_FALSE(dim("a").Same(dim("c")));
  EXPECT_LT(dim("a").symbol().size(), 100u);
}

TEST(ImportTest, NoDimensionNameIsTakenForAnothersShortForm) {
  const std::string name(1000, 'n');
  const auto symbol_of = [&](const std::vector<testing::DeclaredDim>& dims) {
    ModelBuilder m(13);
    m.Input("x", kFloat, dims).Output("x");
    const auto model = m.Import();
    return model.ok() ? FindValue(model->graph, "x")->shape.dims() : std::vector<Dim>{};
  };
  const std::string symbol = symbol_of({name})[0].symbol();
  const std::vector<Dim> both = symbol_of({name, symbol});
  EXPECT_EQ(both[0].symbol(), symbol);
  EXPECT_FALSE(both[0].Same(both[1]));
}

TEST(ImportTest, SaysWhoMadeTheModel) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {1}).Output("x");
  m.model().set_producer_name("pytorch");
  m.model().set_producer_version("2.1");
  auto* entry = m.model().add_metadata_props();
  entry->set_key("author");
  entry->set_value("someone");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->producer, "pytorch 2.1");
  EXPECT_EQ(model->metadata.at("author"), "someone");
}

TEST(ImportTest, OrdersNodesByWhatTheyRead) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("z");
  m.Node("Neg", {"y"}, {"z"});
  m.Node("Abs", {"x"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Operators(model->graph), ElementsAre("Abs", "Neg"));
}

TEST(ImportTest, NodesWhoseOutputNobodyNamesStillHaveOne) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Output("x");
  m.Node("Neg", {"x"}, {""});
  m.Node("Abs", {"x"}, {});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  for (const Node& node : model->graph.nodes) {
    ASSERT_EQ(node.outputs.size(), 1u);
    EXPECT_NE(node.outputs[0], kNoValue);
  }
}

TEST(ImportTest, TakesInitialisersListedAsInputsForConstants) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2}).Input("w", kFloat, {2}).Output("y");
  m.Floats("w", {2}, {1, 2});
  m.Node("Add", {"x", "w"}, {"y"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.inputs.size(), 1u);
  EXPECT_TRUE(FindValue(model->graph, "w")->is_constant());
}

TEST(ImportTest, TurnsConstantNodesIntoConstants) {
  ModelBuilder m(13);
  m.Output("a").Output("b").Output("c").Output("d");
  m.Node("Constant", {}, {"a"}).Float("value_float", 1.5f);
  m.Node("Constant", {}, {"b"}).Ints("value_ints", {4, 5});
  m.Node("Constant", {}, {"c"}).Int("value_int", 7);
  m.Node("Constant", {}, {"d"}).Floats("value_floats", {1, 2, 3});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->graph.nodes.empty());
  EXPECT_EQ(FindValue(model->graph, "a")->constant.values<float>()[0], 1.5f);
  EXPECT_EQ(FindValue(model->graph, "a")->constant.shape().rank(), 0);
  EXPECT_THAT(FindValue(model->graph, "b")->constant.values<int64_t>(), ElementsAre(4, 5));
  EXPECT_EQ(FindValue(model->graph, "c")->constant.values<int64_t>()[0], 7);
  EXPECT_THAT(FindValue(model->graph, "d")->constant.values<float>(), ElementsAre(1, 2, 3));
}

// One tensor of every element type, from the typed field that ONNX keeps it in.
TEST(ImportTest, DecodesEveryElementTypeFromItsField) {
  ModelBuilder m(13);
  m.Tensor("f", onnx::TensorProto::FLOAT, {1})->add_float_data(-2.5f);
  m.Tensor("d", onnx::TensorProto::DOUBLE, {1})->add_double_data(0.1);
  m.Tensor("h", onnx::TensorProto::FLOAT16, {1})->add_int32_data(0x3c00);
  m.Tensor("b", onnx::TensorProto::BFLOAT16, {1})->add_int32_data(0x4000);
  m.Tensor("i8", onnx::TensorProto::INT8, {1})->add_int32_data(-7);
  m.Tensor("i16", onnx::TensorProto::INT16, {1})->add_int32_data(-300);
  m.Tensor("i32", onnx::TensorProto::INT32, {1})->add_int32_data(-70000);
  m.Tensor("i64", onnx::TensorProto::INT64, {1})->add_int64_data(int64_t{-1} << 40);
  m.Tensor("u8", onnx::TensorProto::UINT8, {1})->add_int32_data(200);
  m.Tensor("u16", onnx::TensorProto::UINT16, {1})->add_int32_data(60000);
  m.Tensor("u32", onnx::TensorProto::UINT32, {1})->add_uint64_data(4000000000u);
  m.Tensor("u64", onnx::TensorProto::UINT64, {1})->add_uint64_data(~uint64_t{0});
  m.Tensor("bool", onnx::TensorProto::BOOL, {1})->add_int32_data(1);
  m.Output("f");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto at = [&](const char* name) { return FindValue(model->graph, name)->constant; };
  EXPECT_EQ(at("f").data<float>()[0], -2.5f);
  EXPECT_EQ(at("d").data<double>()[0], 0.1);
  EXPECT_EQ(static_cast<float>(at("h").data<Float16>()[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(at("b").data<BFloat16>()[0]), 2.0f);
  EXPECT_EQ(at("i8").data<int8_t>()[0], -7);
  EXPECT_EQ(at("i16").data<int16_t>()[0], -300);
  EXPECT_EQ(at("i32").data<int32_t>()[0], -70000);
  EXPECT_EQ(at("i64").data<int64_t>()[0], int64_t{-1} << 40);
  EXPECT_EQ(at("u8").data<uint8_t>()[0], 200);
  EXPECT_EQ(at("u16").data<uint16_t>()[0], 60000);
  EXPECT_EQ(at("u32").data<uint32_t>()[0], 4000000000u);
  EXPECT_EQ(at("u64").data<uint64_t>()[0], ~uint64_t{0});
  EXPECT_EQ(at("bool").data<bool>()[0], true);
}

TEST(ImportTest, DecodesRawBytes) {
  ModelBuilder m(13);
  const int16_t values[] = {1, -2, 300};
  m.Tensor("w", onnx::TensorProto::INT16, {3})->set_raw_data(values, sizeof(values));
  m.Tensor("flag", onnx::TensorProto::BOOL, {1})->set_raw_data("\x7f");
  m.Output("w").Output("flag");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(FindValue(model->graph, "w")->constant.values<int16_t>(), ElementsAre(1, -2, 300));
  uint8_t flag = 0;
  std::memcpy(&flag, FindValue(model->graph, "flag")->constant.raw(), 1);
  EXPECT_EQ(flag, 1);
}

// Two to a byte, the lower half first; what is left of the last byte counts for nothing.
// As value_info, as an input of the same name, and as a Constant.
TEST(ImportTest, ElementsOfFourBitsMayBeDeclared) {
  ModelBuilder m(21);
  const std::string bytes = {0x10, 0x32};
  m.Tensor("w", testing::kInt4, {4})->set_raw_data(bytes);
  m.Floats("scale", {}, {1});
  for (auto* info : {m.proto().add_value_info(), m.proto().add_input()}) {
    info->set_name("w");
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(testing::kInt4);
    type->mutable_shape()->add_dim()->set_dim_value(4);
  }
  auto* constant = m.proto().add_node();
  constant->set_op_type("Constant");
  constant->add_output("c");
  auto* value = constant->add_attribute();
  value->set_name("value");
  value->set_type(onnx::AttributeProto::TENSOR);
  value->mutable_t()->set_data_type(testing::kUInt4);
  value->mutable_t()->add_dims(3);
  value->mutable_t()->set_raw_data(bytes);
  for (const char* name : {"w", "c"}) {
    const std::string out = std::string(name) + "_out";
    m.Output(out).Node("DequantizeLinear", {name, "scale"}, {out});
  }
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->graph.inputs.empty());
  const auto elements = [&](const std::string& name) {
    const auto values = testing::FindValue(model->graph, name)->constant.values<int8_t>();
    return std::vector<int>(values.begin(), values.end());
  };
  EXPECT_THAT(elements("w"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(elements("c"), ElementsAre(0, 1, 2));
}

TEST(ImportTest, DecodesElementsOfFourBits) {
  ModelBuilder m(21);
  const std::string bytes = {0x10, static_cast<char>(0x8F), static_cast<char>(0xF7)};
  m.Tensor("raw", testing::kInt4, {5})->set_raw_data(bytes);
  auto* field = m.Tensor("field", testing::kUInt4, {5});
  for (const int byte : {0x10, 0x8F, 0xF7}) field->add_int32_data(byte);
  m.Tensor("none", testing::kInt4, {0, 3})->set_raw_data("");
  m.Floats("scale", {}, {1});
  for (const char* name : {"raw", "field", "none"}) {
    const std::string out = std::string(name) + "_out";
    m.Output(out).Node("DequantizeLinear", {name, "scale"}, {out});
  }
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto elements = [&](const std::string& name) {
    const auto values = testing::FindValue(model->graph, name)->constant.values<int8_t>();
    return std::vector<int>(values.begin(), values.end());
  };
  EXPECT_THAT(elements("raw"), ElementsAre(0, 1, -1, -8, 7));
  EXPECT_THAT(elements("field"), ElementsAre(0, 1, 15, 8, 7));
  EXPECT_THAT(elements("none"), ElementsAre());
}

TEST(ImportTest, PassesWhatABodyReadsFromOutside) {
  ModelBuilder m(13);
  m.Input("cond", kBool, {}).Input("x", kFloat, {"n", 4}).Output("y");
  m.Floats("w", {4}, {1, 2, 3, 4});
  auto node = m.Node("If", {"cond"}, {"y"});
  GraphProtoBuilder then(node.Body("then_branch"));
  then.Output("a", kFloat).Node("Add", {"x", "w"}, {"a"});
  GraphProtoBuilder other(node.Body("else_branch"));
  other.Output("b", kFloat).Node("Neg", {"x"}, {"b"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  ASSERT_EQ(graph.nodes.size(), 1u);
  // The condition, then x for either branch; the constant is copied into the branch instead.
  EXPECT_THAT(graph.nodes[0].inputs,
              ElementsAre(graph.inputs[0], graph.inputs[1], graph.inputs[1]));
  for (const auto& [name, body] : Subgraphs(graph.nodes[0])) EXPECT_EQ(body->num_captures, 1);
  EXPECT_EQ(FindValue(graph, "y")->shape.ToString(), "[n,4]");
}

TEST(ImportTest, CapturesThroughNestedBodies) {
  ModelBuilder m(13);
  m.Input("cond", kBool, {}).Input("x", kFloat, {2}).Output("y");
  auto outer = m.Node("If", {"cond"}, {"y"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    GraphProtoBuilder body(outer.Body(branch));
    body.Output("v", kFloat);
    auto inner = body.Node("If", {"cond"}, {"v"});
    for (const char* inner_branch : {"then_branch", "else_branch"}) {
      GraphProtoBuilder leaf(inner.Body(inner_branch));
      leaf.Output("u", kFloat).Node("Neg", {"x"}, {"u"});
    }
  }
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  // Each branch reads cond and x.
  EXPECT_EQ(model->graph.nodes[0].inputs.size(), 5u);
}

// y = x [n, 5] split in four where `condition` holds, else all of x.
ModelBuilder SplittingInFour(const char* condition) {
  ModelBuilder m(18);
  m.Input("x", kFloat, {"n", 5}).Input("flag", kBool, {}).Output("y");
  m.Ints("axis", {1}).Ints("four", {4});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "axis"}, {"columns"});
  m.Node("Equal", {"columns", "four"}, {"has_four"});
  auto node = m.Node("If", {condition}, {"part"});
  GraphProtoBuilder then(node.Body("then_branch"));
  then.Output("a").Node("Split", {"x"}, {"a", "b", "c", "d"}).Int("axis", 1).Int("num_outputs", 4);
  GraphProtoBuilder other(node.Body("else_branch"));
  other.Output("all").Node("Identity", {"x"}, {"all"});
  // What it becomes depends on the type of its second input.
  m.Node("CastLike", {"shape", "part"}, {"sizes"});
  m.Node("Neg", {"part"}, {"y"});
  return m;
}

TEST(ImportTest, ABranchThatIsNeverTakenMayBeForOtherShapes) {
  ModelBuilder m = SplittingInFour("has_four");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  for (const std::string& op : Operators(model->graph)) EXPECT_NE(op, "If");
  EXPECT_EQ(FindValue(model->graph, "y")->shape.ToString(), "[n,5]");
}

TEST(ImportTest, ABranchThatRequestsMayTakeMustFit) {
  ModelBuilder m = SplittingInFour("flag");
  const auto model = m.Import();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(Message(model.status()), ::testing::HasSubstr("5 cannot be split into 4 parts"));
}

TEST(ImportTest, InlinesFunctionsWithTheirAttributes) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2, 3}).Output("y").Output("z");
  m.Node("Twice", {"x"}, {"y"}).Domain("custom").Name("first").Int("dim", 0);
  m.Node("Twice", {"y"}, {"z"}).Domain("custom").Name("second").Int("dim", 1);
  m.model().add_opset_import()->set_domain("custom");
  m.model().mutable_opset_import(1)->set_version(1);
  auto* function = m.model().add_functions();
  function->set_name("Twice");
  function->set_domain("custom");
  function->add_opset_import()->set_version(13);
  function->add_input("in");
  function->add_output("out");
  function->add_attribute("dim");
  auto* node = function->add_node();
  node->set_op_type("Concat");
  node->add_input("in");
  node->add_input("in");
  node->add_output("out");
  testing::NodeBuilder(node).Reference("axis", onnx::AttributeProto::INT, "dim");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Operators(model->graph), ElementsAre("Concat", "Concat"));
  const Value& out = model->graph.values[model->graph.outputs[1]];
  EXPECT_EQ(out.shape.ToString(), "[4,6]");
  EXPECT_EQ(model->graph.nodes[0].name, "first/Concat_0");
}

TEST(ImportTest, IgnoresStaleShapesOfIntermediateValues) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"n", 3}).Output("z", kFloat, {1, 3});
  m.Node("Abs", {"x"}, {"y"});
  m.Node("Neg", {"y"}, {"z"});
  auto* info = m.proto().add_value_info();
  info->set_name("y");
  info->mutable_type()->mutable_tensor_type()->set_elem_type(kFloat);
  info->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(1);
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(FindValue(model->graph, "y")->shape.ToString(), "[n,3]");
  EXPECT_EQ(FindValue(model->graph, "z")->shape.ToString(), "[n,3]");
}

// What is computed from an output does not rely on the shape that the file declares for it.
TEST(ImportTest, NothingIsComputedFromDeclaredShapesOfOutputs) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {3, 4}).Input("s", kInt64, {2}).Input("c", kBool, {});
  m.Output("y", kFloat, {3, 4}).Output("last", kFloat, {3, 4}).Output("shape").Output("branch");
  m.Node("Reshape", {"x", "s"}, {"y"});
  m.Node("Shape", {"y"}, {"shape"});
  m.Node("Reshape", {"y", "s"}, {"last"});
  auto node = m.Node("If", {"c"}, {"z"});
  for (const char* name : {"then_branch", "else_branch"}) {
    GraphProtoBuilder branch(node.Body(name));
    branch.Node("Reshape", {"x", "s"}, {"o"});
    branch.Output("o", kFloat, {3, 4});
  }
  m.Node("Shape", {"z"}, {"branch"});
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  const auto dim = [&](const std::string& name, int i) {
    return FindValue(model->graph, name)->shape[i];
  };
  for (const char* name : {"y", "z"}) {
    EXPECT_FALSE(dim(name, 0).known()) << name;
    EXPECT_FALSE(dim(name, 1).known()) << name;
  }
  EXPECT_EQ(dim("last", 0).value(), 3);  // told to clients alone
}

class ExternalDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("chairlift_import_test_" +
             std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ / "model");
    Write(root_ / "secret.bin");
    Write(root_ / "model" / "weights.bin");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static void Write(const std::filesystem::path& path) {
    const float values[] = {9, 1, 2, 3};
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(values), sizeof(values));
  }

  StatusOr<ImportedModel> Import(const std::string& location, const std::string& offset,
                                 const std::string& length) const {
    ModelBuilder m(13);
    auto* tensor = m.Tensor("w", kFloat, {3});
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    const std::pair<const char*, std::string> entries[] = {
        {"location", location}, {"offset", offset}, {"length", length}};
    for (const auto& [key, value] : entries) {
      if (value.empty()) continue;
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    m.Output("w");
    return m.Import(root_ / "model");
  }

  std::filesystem::path root_;
};

TEST_F(ExternalDataTest, ReadsTheRangeGiven) {
  const auto model = Import("weights.bin", "4", "12");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(FindValue(model->graph, "w")->constant.values<float>(), ElementsAre(1, 2, 3));
}

TEST_F(ExternalDataTest, RefusesRangesOutsideTheFile) {
  for (const char* offset : {"8", "9000000000000000000", "-4", "four", "18446744073709551615"}) {
    EXPECT_FALSE(Import("weights.bin", offset, "12").ok()) << offset;
  }
  EXPECT_FALSE(Import("weights.bin", "4", "8").ok());
  EXPECT_FALSE(Import("weights.bin", "4", "9223372036854775807").ok());
}

TEST_F(ExternalDataTest, RefusesToLeaveTheFolder) {
  std::filesystem::create_symlink(root_ / "secret.bin", root_ / "model" / "link.bin");
  std::filesystem::create_directory_symlink(root_, root_ / "model" / "up");
  for (const std::string& location :
       {std::string("../secret.bin"), std::string("sub/../../secret.bin"),
        (root_ / "secret.bin").string(), std::string("link.bin"), std::string("up/secret.bin"),
        std::string("."), std::string(""), std::string("missing.bin"),
        std::string("weights.bin\0x", 13)}) {
    EXPECT_FALSE(Import(location, "4", "12").ok()) << location;
  }
}

// Files as a cache keeps them: the model's folder has links to blobs.
class LinkedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) / "linked_model_test";
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(Model());
    std::filesystem::create_directories(root_ / "elsewhere");
    Write(root_ / "elsewhere/secret", WeightBytes());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path Model() const { return root_ / "model"; }
  static std::string WeightBytes() {
    const float values[] = {1, 2, 3};
    return {reinterpret_cast<const char*>(values), sizeof(values)};
  }
  static std::string ModelBytes(const std::string& location = "weights") {
    ModelBuilder m(13);
    auto* tensor = m.Tensor("w", kFloat, {3});
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    auto* entry = tensor->add_external_data();
    entry->set_key("location");
    entry->set_value(location);
    m.Output("w");
    return m.Bytes();
  }
  static void Write(const std::filesystem::path& file, const std::string& bytes) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
  }
  // A file of the model, which really lies at `to`, under the root.
  void Link(const std::string& name, const std::string& to, const std::string& bytes) {
    Write(root_ / to, bytes);
    std::filesystem::create_symlink(root_ / to, Model() / name);
  }
  std::string Refusal() const { return Message(ImportOnnxFile(Model() / "model.onnx").status()); }

  std::filesystem::path root_;
};

TEST_F(LinkedModelTest, WeightsMayLieWhereTheModelsFileReallyLies) {
  Link("model.onnx", "blobs/a", ModelBytes());
  Link("weights", "blobs/b", WeightBytes());
  const auto model = ImportOnnxFile(Model() / "model.onnx");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(FindValue(model->graph, "w")->constant.values<float>(), ElementsAre(1, 2, 3));
}

TEST_F(LinkedModelTest, ACacheMaySpreadItsFiles) {
  for (const char* cache : {"x/.git/annex/objects/", "x/.dvc/cache/", "cache/files/md5/"}) {
    SCOPED_TRACE(cache);
    std::filesystem::remove_all(Model());
    std::filesystem::create_directories(Model());
    Link("model.onnx", cache + std::string("aa/1111"), ModelBytes());
    Link("weights", cache + std::string("bb/2222"), WeightBytes());
    EXPECT_EQ(Refusal(), "");
  }
}

TEST_F(LinkedModelTest, AProjectedVolumeHasLinksToALink) {
  Write(Model() / "..2026/model.onnx", ModelBytes());
  Write(Model() / "..2026/weights", WeightBytes());
  std::filesystem::create_directory_symlink("..2026", Model() / "..data");
  for (const char* name : {"model.onnx", "weights"}) {
    std::filesystem::create_symlink(std::filesystem::path("..data") / name, Model() / name);
  }
  EXPECT_EQ(Refusal(), "");
}

TEST_F(LinkedModelTest, AFolderMayBeALink) {
  Write(Model() / "model.onnx", ModelBytes());
  Write(Model() / "weights", WeightBytes());
  std::filesystem::create_directory_symlink(Model(), root_ / "named");
  const auto model = ImportOnnxFile(root_ / "named/model.onnx");
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST_F(LinkedModelTest, WeightsElsewhereAreRefused) {
  Write(Model() / "model.onnx", ModelBytes());
  Link("weights", "elsewhere/secret", WeightBytes());
  EXPECT_THAT(Refusal(), HasSubstr("leads out of the model's folder"));
  // Also for a model that is a link, if they are not in its cache.
  std::filesystem::remove(Model() / "model.onnx");
  Link("model.onnx", "blobs/a", ModelBytes());
  EXPECT_THAT(Refusal(), HasSubstr("leads out of the model's folder"));
  // A name that leads there lexically is refused whatever the model's file is.
  Write(root_ / "blobs/a", ModelBytes("../blobs/b"));
  Write(root_ / "blobs/b", WeightBytes());
  EXPECT_THAT(Refusal(), HasSubstr("leaves the model's folder"));
  Write(root_ / "blobs/a", ModelBytes((root_ / "blobs/b").string()));
  EXPECT_THAT(Refusal(), HasSubstr("is not a relative path"));
}

TEST_F(LinkedModelTest, WeightsBesideALinksTargetNeedALinkOfTheirOwn) {
  Link("model.onnx", "blobs/a", ModelBytes());
  Write(root_ / "blobs/weights", WeightBytes());
  EXPECT_THAT(Refusal(), HasSubstr("No such file"));
}

TEST_F(LinkedModelTest, LoopsAndSpecialFilesAreRefused) {
  Write(Model() / "model.onnx", ModelBytes());
  std::filesystem::create_symlink("weights", Model() / "weights");
  EXPECT_THAT(Refusal(), HasSubstr("Too many levels of symbolic links"));
  std::filesystem::remove(Model() / "weights");
  ASSERT_EQ(::mkfifo((Model() / "weights").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("is not a regular file"));
  std::filesystem::remove(Model() / "weights");
  std::filesystem::create_symlink("/dev/zero", Model() / "weights");
  EXPECT_THAT(Refusal(), HasSubstr("leads out of the model's folder"));
  std::filesystem::remove(Model() / "model.onnx");
  std::filesystem::create_symlink("model.onnx", Model() / "model.onnx");
  EXPECT_THAT(Refusal(), HasSubstr("Too many levels of symbolic links"));
}

TEST_F(ExternalDataTest, RefusesTheModelAsItsOwnDataWhereItIsTooShort) {
  ModelBuilder m(13);
  auto* tensor = m.Tensor("w", kFloat, {1 << 20});
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = tensor->add_external_data();
  entry->set_key("location");
  entry->set_value("model.onnx");
  m.Output("w");
  const std::filesystem::path path = root_ / "model" / "model.onnx";
  std::ofstream(path, std::ios::binary) << m.Bytes();
  const auto model = ImportOnnxFile(path);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(Message(model.status()), ::testing::HasSubstr("bytes at offset"));
}

TEST_F(ExternalDataTest, RefusesExternalDataWithoutAFolder) {
  ModelBuilder m(13);
  m.Tensor("w", kFloat, {3})->set_data_location(onnx::TensorProto::EXTERNAL);
  m.Output("w");
  EXPECT_FALSE(m.Import().ok());
}

// Fields that this build's protobuf classes do not know, and a file version of the future.
TEST(ImportTest, WhatLaterFileVersionsAddIsPassedOver) {
  ModelBuilder m(28);
  m.model().set_ir_version(99);
  m.Input("x", kFloat, {2}).Output("y");
  m.Node("Neg", {"x"}, {"y"});
  onnx::NodeProto& node = *m.proto().mutable_node(0);
  node.GetReflection()->MutableUnknownFields(&node)->AddLengthDelimited(4000, "sharding");
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.nodes.size(), 1u);
}

}  // namespace
}  // namespace chairlift
