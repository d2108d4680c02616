// What quantisers make of (1 − mask) · lowest float, in QDQ form.
#include "graph/quantized_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/model_builder.h"
#include "graph/passes/pass_harness.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace quantized_masks_test {

using ::testing::ElementsAre;
using testing::ModelBuilder;

constexpr int kInt8 = onnx::TensorProto::INT8;
constexpr int kUInt8 = onnx::TensorProto::UINT8;
constexpr float kMaskScale = 2.6793887e36f;

// y = quantised(op(a, b)), of int8 whose zero points are 0. b is a constant.
struct QdqModel {
  QdqModel(const std::string& op, float b_scale, int b, float y_scale, bool zero_points = true,
           bool real_is_output = false)
      : model(18) {
    model.Input("a", kInt8, {"n"});
    model.Floats("as", {}, {1}).Floats("bs", {}, {b_scale}).Floats("ys", {}, {y_scale});
    model.Tensor("b", kInt8, {})->add_int32_data(b);
    model.Tensor("z", kInt8, {})->add_int32_data(0);
    if (zero_points) {
      model.Node("DequantizeLinear", {"a", "as", "z"}, {"ar"});
      model.Node("DequantizeLinear", {"b", "bs", "z"}, {"br"});
    } else {
      model.Node("DequantizeLinear", {"a", "as"}, {"ar"});
      model.Node("DequantizeLinear", {"b", "bs"}, {"br"});
    }
    model.Node(op, {"ar", "br"}, {"r"});
    model.Node("QuantizeLinear", {"r", "ys", "z"}, {"y"});
    model.Output("y");
    if (real_is_output) model.Output("r");
  }
  // Whether an operator of integers has taken the place of those of floats.
  bool Joined(const std::string& name) const {
    const auto imported = model.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    return imported.ok() && std::any_of(imported->graph.nodes.begin(), imported->graph.nodes.end(),
                                        [&](const Node& n) { return Is(n, name, "chairlift"); });
  }
  std::vector<int> Answer(std::vector<int8_t> a) const {
    auto imported = model.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    const Shape shape{static_cast<int64_t>(a.size())};
    const auto y = testing::Evaluate(imported->graph, {Tensor::Of<int8_t>(shape, std::move(a))});
    return {y[0].values<int8_t>().begin(), y[0].values<int8_t>().end()};
  }

  ModelBuilder model;
};

TEST(QuantizedMasksTest, ZeroTimesTheLowestFloatIsZero) {
  for (const bool zero_points : {true, false}) {
    const QdqModel product("Mul", kMaskScale, -127, 1, zero_points);
    EXPECT_TRUE(product.Joined("QLinearMul"));
    EXPECT_THAT(product.Answer({0, 1, 0, 1}), ElementsAre(0, -128, 0, -128));
  }
  const QdqModel sum("Add", kMaskScale, -127, kMaskScale);
  EXPECT_TRUE(sum.Joined("QLinearAdd"));
  EXPECT_THAT(sum.Answer({0, 127}), ElementsAre(-127, -127));
}

TEST(QuantizedMasksTest, WhatCannotOverflowStaysAsTheFileHasIt) {
  EXPECT_FALSE(QdqModel("Mul", 1e36f, -127, 1).Joined("QLinearMul"));
  EXPECT_FALSE(QdqModel("Add", 0.5f, 3, 1).Joined("QLinearAdd"));
  // The real product is an answer, too.
  EXPECT_FALSE(QdqModel("Mul", kMaskScale, -127, 1, true, true).Joined("QLinearMul"));
}

TEST(QuantizedMasksTest, OperandsOfSeveralScalesOrTypesAreLeftAlone) {
  const auto joined = [](int b_type, int64_t entries) {
    ModelBuilder model(18);
    model.Input("a", kInt8, {2}).Input("b", b_type, {2});
    model.Floats("as", {}, {1}).Floats("ys", {}, {1});
    auto* scales = model.Tensor("bs", onnx::TensorProto::FLOAT, {entries});
    for (int64_t i = 0; i < entries; ++i) scales->add_float_data(kMaskScale);
    model.Node("DequantizeLinear", {"a", "as"}, {"ar"});
    model.Node("DequantizeLinear", {"b", "bs"}, {"br"}).Int("axis", 0);
    model.Tensor("z", kInt8, {})->add_int32_data(0);
    model.Node("Mul", {"ar", "br"}, {"r"});
    model.Node("QuantizeLinear", {"r", "ys", "z"}, {"y"});
    model.Output("y");
    const auto imported = model.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    return imported.ok() && std::any_of(imported->graph.nodes.begin(), imported->graph.nodes.end(),
                                        [](const Node& n) { return n.def->domain == "chairlift"; });
  };
  EXPECT_TRUE(joined(kInt8, 1));
  EXPECT_FALSE(joined(kInt8, 2));
  EXPECT_FALSE(joined(kUInt8, 1));
}

}  // namespace quantized_masks_test
}  // namespace chairlift
