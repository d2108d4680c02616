// What operators say that they hand on as it is (OperatorDef::hands_on) is true of their kernels.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift::testing {
namespace {

int HandedOn(const OperatorCall& call) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", call.name);
  std::vector<ValueInfo> inputs;
  for (const Tensor& t : call.inputs) {
    inputs.push_back({t.dtype(), SymbolicShape(t.shape()), t.present() ? &t : nullptr, {}});
  }
  InferContext context(call.attributes, inputs, call.num_outputs);
  EXPECT_TRUE(def->infer(context).ok()) << call.name;
  return def->hands_on(call.attributes, inputs, context.outputs());
}

const Tensor& X() {
  static const auto* const kX = new Tensor(RandomTensor(DType::kFloat, {2, 3}, -1, 1, 1));
  return *kX;
}
Tensor Integers(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                             std::span<const int64_t>(values));
}

std::vector<OperatorCall> CallsThatHandOnInput0() {
  const Tensor zero = Tensor::Scalar(0.0f), one = Tensor::Scalar(1.0f);
  std::vector<OperatorCall> calls = {
      {.name = "Cast", .attributes = Attrs({{"to", int64_t{1}}}), .inputs = {X()}},
      {.name = "CastLike", .inputs = {X(), zero}},
      {.name = "Transpose",
       .attributes = Attrs({{"perm", std::vector<int64_t>{0, 1}}}),
       .inputs = {X()}},
      {.name = "Pad", .inputs = {X(), Integers({0, 0, 0, 0})}},
      {.name = "Slice", .inputs = {X(), Integers({0}), Integers({9}), Integers({1})}},
      {.name = "Reshape", .inputs = {X(), Integers({-1, 3})}},
      {.name = "Expand", .inputs = {X(), Integers({1, 3})}},
      {.name = "Unsqueeze", .inputs = {X(), Integers({})}},
      {.name = "Tile", .inputs = {X(), Integers({1, 1})}},
      {.name = "Add", .inputs = {X(), zero}},
      {.name = "Sub", .inputs = {X(), zero}},
      {.name = "Mul", .inputs = {X(), one}},
      {.name = "Div", .inputs = {X(), one}},
      {.name = "Pow", .inputs = {X(), one}}};
  for (const char* name :
       {"Identity", "Dropout", "Concat", "Sum", "Max", "Min", "Mean", "Flatten", "Squeeze"}) {
    calls.push_back({.name = name, .inputs = {X()}});
    if (calls.back().name == "Concat") calls.back().attributes.Set("axis", int64_t{0});
  }
  return calls;
}

TEST(HandsOnTest, WhatIsHandedOnIsTheOutput) {
  std::vector<OperatorCall> calls = CallsThatHandOnInput0();
  std::set<std::string> named;
  for (const OperatorCall& call : calls) {
    named.insert(call.name);
    EXPECT_EQ(HandedOn(call), 0) << call.name;
    const auto outputs = RunOperator(call);
    ASSERT_TRUE(outputs.ok()) << call.name << ": " << outputs.status();
    EXPECT_EQ((*outputs)[0].shape(), X().shape()) << call.name;
    EXPECT_EQ(AsDoubles((*outputs)[0]), AsDoubles(X())) << call.name;
  }
  for (const OperatorDef* def : OperatorRegistry::Builtin().All()) {
    EXPECT_EQ(def->hands_on != nullptr, named.contains(def->name) && def->domain.empty())
        << def->name;
  }
}

TEST(HandsOnTest, SumsAndProductsHandOnEitherOperand) {
  const Tensor zero = Tensor::Scalar(0.0f), one = Tensor::Scalar(1.0f);
  EXPECT_EQ(HandedOn({.name = "Add", .inputs = {zero, X()}}), 1);
  EXPECT_EQ(HandedOn({.name = "Mul", .inputs = {one, X()}}), 1);
  EXPECT_EQ(HandedOn({.name = "Sub", .inputs = {zero, X()}}), -1);
  EXPECT_EQ(HandedOn({.name = "Div", .inputs = {one, X()}}), -1);
  EXPECT_EQ(HandedOn({.name = "Pow", .inputs = {one, X()}}), -1);
}

TEST(HandsOnTest, WhatChangesElementsOrShapeHandsOnNothing) {
  const Tensor zero = Tensor::Scalar(0.0f), one = Tensor::Scalar(1.0f);
  const Tensor row = RandomTensor(DType::kFloat, {1, 3}, -1, 1, 1);
  const std::vector<OperatorCall> calls = {
      {.name = "Add", .inputs = {X(), one}},
      {.name = "Mul", .inputs = {X(), zero}},
      {.name = "Add", .inputs = {Tensor::Scalar(2.0f), Tensor::Of<float>({1, 1}, {0.0f})}},
      {.name = "Sum", .inputs = {X(), X()}},
      {.name = "Transpose", .inputs = {X()}},
      {.name = "Pad", .inputs = {X(), Integers({0, 0, 0, 1})}},
      {.name = "Slice",
       .inputs = {X(), Integers({-1}), Integers({-9}), Integers({1}), Integers({-1})}},
      {.name = "Slice", .inputs = {X(), Integers({1}), Integers({9}), Integers({1})}},
      {.name = "Reshape", .inputs = {X(), Integers({3, 2})}},
      {.name = "Expand", .inputs = {row, Integers({2, 3})}},
      {.name = "Tile", .inputs = {X(), Integers({1, 2})}},
      {.name = "Dropout", .inputs = {X()}, .num_outputs = 2}};
  for (const OperatorCall& call : calls) EXPECT_EQ(HandedOn(call), -1) << call.name;
}

}  // namespace
}  // namespace chairlift::testing
