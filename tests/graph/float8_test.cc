// Models with 8-bit floats: which operators take them, and what they compute.
#include "ops/quantization/float8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/model_builder.h"
#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::ModelBuilder;
using testing::NodeBuilder;

// Numbers of TensorProto.DataType, which older protobuf classes do not name.
constexpr int kE4M3 = 17, kE5M2 = 19;

void AddCodes(ModelBuilder& m, const std::string& name, int type,
              std::initializer_list<int64_t> dims, const std::vector<int>& codes) {
  auto* tensor = m.Tensor(name, type, dims);
  for (const int code : codes) tensor->add_int32_data(code);
}

std::vector<float> RunFloat8(const ModelBuilder& m, const std::vector<Tensor>& inputs) {
  const auto model = m.Import();
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const Tensor y = testing::Evaluate(model->graph, inputs)[0];
  EXPECT_EQ(y.dtype(), DType::kFloat);
  return {y.values<float>().begin(), y.values<float>().end()};
}

std::string RefusedFloat8(const ModelBuilder& m) {
  return std::string(m.Import().status().message());
}

TEST(Float8ModelTest, CastsThereAndBack) {
  for (const bool saturate : {true, false}) {
    ModelBuilder m(19);
    m.Input("x", kFloat, {"n"}).Output("y");
    m.Node("Cast", {"x"}, {"q"}).Int("to", kE5M2).Int("saturate", saturate ? 1 : 0);
    m.Node("Reshape", {"q", "flat"}, {"r"});
    m.Ints("flat", {-1});
    m.Node("Cast", {"r"}, {"y"}).Int("to", kFloat);
    EXPECT_THAT(RunFloat8(m, {Tensor::Of<float>({4}, {1.1f, -1.2f, 1e6f, 0.0f})}),
                ElementsAre(1.0f, -1.25f,
                            saturate ? 57344.0f : std::numeric_limits<float>::infinity(), 0.0f));
  }
}

TEST(Float8ModelTest, IntegersAndExamplesAreCast) {
  ModelBuilder m(19);
  m.Input("x", testing::kInt64, {3}).Output("y");
  AddCodes(m, "like", kE4M3, {}, {0});
  m.Node("CastLike", {"x", "like"}, {"q"});
  m.Node("Cast", {"q"}, {"y"}).Int("to", kFloat);
  // 2⁵³ + 1 saturates; 17 lies between 16 and 18.
  EXPECT_THAT(RunFloat8(m, {Tensor::Of<int64_t>({3}, {-17, 19, (int64_t{1} << 53) + 1})}),
              ElementsAre(-16, 20, 448));
}

TEST(Float8ModelTest, WeightsAndActivationsInQdqForm) {
  ModelBuilder m(19);
  m.Input("x", kFloat, {1, 2}).Output("y");
  m.Floats("s", {}, {0.5f}).Floats("ws", {2}, {2.0f, 4.0f});
  AddCodes(m, "zero", kE4M3, {}, {0});
  AddCodes(m, "w", kE4M3, {2, 2}, {0x38, 0x40, 0xb8, 0x08});  // 1, 2, -1, 2⁻⁶
  m.Node("QuantizeLinear", {"x", "s", "zero"}, {"q"});
  m.Node("DequantizeLinear", {"q", "s", "zero"}, {"d"});
  m.Node("DequantizeLinear", {"w", "ws"}, {"v"}).Int("axis", 0);
  m.Node("MatMul", {"d", "v"}, {"y"});
  // x becomes 1 and 450 · 0.5 = 225 → 224; rows of w are [2, 4] and [-4, 2⁻⁴].
  EXPECT_THAT(RunFloat8(m, {Tensor::Of<float>({1, 2}, {1.01f, 225.0f})}),
              ElementsAre(2 - 4 * 224.0f, 4 + 224.0f / 16));
}

TEST(Float8ModelTest, ScalesInBlocks) {
  ModelBuilder m(21);
  m.Input("x", kFloat, {1, 1}).Output("y");
  AddCodes(m, "w", kE5M2, {3, 1}, {0x3c, 0x3c, 0x40});  // 1, 1, 2
  m.Floats("ws", {2, 1}, {10.0f, 100.0f});
  m.Node("DequantizeLinear", {"w", "ws"}, {"v"}).Int("axis", 0).Int("block_size", 2);
  m.Node("Mul", {"x", "v"}, {"y"});
  EXPECT_THAT(RunFloat8(m, {Tensor::Of<float>({1, 1}, {1.0f})}), ElementsAre(10, 10, 200));
}

TEST(Float8ModelTest, TheTypeMayBeAnAttribute) {
  ModelBuilder m(21);
  m.Input("x", kFloat, {3}).Output("y").Floats("s", {3}, {1.0f, 2.0f, 4.0f});
  m.Node("QuantizeLinear", {"x", "s"}, {"q"}).Int("axis", 0).Int("output_dtype", kE4M3);
  m.Node("DequantizeLinear", {"q", "s"}, {"y"}).Int("axis", 0);
  EXPECT_THAT(RunFloat8(m, {Tensor::Of<float>({3}, {17.0f, 34.0f, 1e9f})}),
              ElementsAre(16, 32, 1792));
}

TEST(Float8ModelTest, BodiesReadConstantsOutsideOfThem) {
  ModelBuilder m(21);
  m.Input("c", testing::kBool, {}).Output("y");
  AddCodes(m, "w", kE4M3, {2}, {0x38, 0x40});
  auto node = m.Node("If", {"c"}, {"y"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    testing::GraphProtoBuilder body(node.Body(branch));
    body.Output("v", kFloat).Node("Cast", {"w"}, {"v"}).Int("to", kFloat);
  }
  const auto model = m.Import();
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->graph.nodes.size(), 1u);
  for (const auto& [name, body] : Subgraphs(model->graph.nodes[0])) {
    ASSERT_EQ(body->nodes.size(), 1u) << name;
    const Tensor& read = body->values[body->nodes[0].inputs[0]].constant;
    ASSERT_EQ(read.dtype(), DType::kFloat) << name;
    EXPECT_THAT(read.values<float>(), ElementsAre(1, 2)) << name;
  }
}

TEST(Float8ModelTest, WhatCannotBeDoneIsRefusedByName) {
  const auto refused = [](const std::function<void(ModelBuilder&)>& add, int declared = 0) {
    ModelBuilder m(21);
    m.Input("x", kFloat, {2}).Output("y", declared == 0 ? kFloat : declared);
    AddCodes(m, "w", kE4M3, {2}, {0x38, 0x40});
    AddCodes(m, "one", kE4M3, {}, {0x38});
    AddCodes(m, "wide", kE5M2, {}, {0});
    m.Floats("s", {}, {1.0f}).Floats("three", {3}, {1.0f, 1.0f, 1.0f});
    add(m);
    return RefusedFloat8(m);
  };
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Node("Add", {"x", "w"}, {"y"});
              }),
              HasSubstr("input 1 has elements of type float8e4m3fn, which Add does not take"));
  EXPECT_THAT(refused([](ModelBuilder& m) { m.Node("BitCast", {"w"}, {"y"}).Int("to", 2); }),
              HasSubstr("float8e4m3fn"));
  EXPECT_THAT(refused([](ModelBuilder& m) { m.Node("Identity", {"w"}, {"y"}); }),
              HasSubstr("output 'y' has elements of type float8e4m3fn"));
  EXPECT_THAT(refused([](ModelBuilder& m) { m.Node("Identity", {"w"}, {"y"}); }, kE4M3),
              HasSubstr("only inside a model"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Input("q", kE4M3, {2});
                m.Node("Cast", {"q"}, {"y"}).Int("to", kFloat);
              }),
              HasSubstr("only inside a model; cast it to float32"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Node("QuantizeLinear", {"x", "s", "one"}, {"q"});
                m.Node("DequantizeLinear", {"q", "s"}, {"y"});
              }),
              HasSubstr("constant of zeros"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Node("DequantizeLinear", {"w", "s", "wide"}, {"y"});
              }),
              HasSubstr("zero point is float8e5m2"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Node("DequantizeLinear", {"w", "three"}, {"y"}).Int("axis", 0);
              }),
              HasSubstr("its scale has 3 entries; axis 0 of its input has 2"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                m.Node("SequenceConstruct", {"w", "w"}, {"l"});
                m.Node("ConcatFromSequence", {"l"}, {"y"}).Int("axis", 0);
              }),
              HasSubstr("SequenceConstruct does not take"));
  EXPECT_THAT(refused([](ModelBuilder& m) {
                AddCodes(m, "short", kE4M3, {2}, {0x38});
                m.Node("Cast", {"short"}, {"y"}).Int("to", kFloat);
              }),
              HasSubstr("2 elements, but the file holds 1"));
}

}  // namespace
}  // namespace chairlift
