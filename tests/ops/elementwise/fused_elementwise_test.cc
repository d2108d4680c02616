// chairlift::FusedElementwise: random programs against double, and against their operators run one
// by one.
#include "ops/elementwise/fused_elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

struct Function {
  const char* name;
  std::function<double(double, double, double)> value;
};

// Functions that do not amplify rounding without bound.
const std::vector<Function>& Functions() {
  static const std::vector<Function> kFunctions = {
      {"Abs", [](double x, double, double) { return std::abs(x); }},
      {"Neg", [](double x, double, double) { return -x; }},
      {"Tanh", [](double x, double, double) { return std::tanh(x); }},
      {"Sigmoid", [](double x, double, double) { return 1 / (1 + std::exp(-x)); }},
      {"Relu", [](double x, double, double) { return std::max(x, 0.0); }},
      {"Clip", [](double x, double, double) { return std::clamp(x, -0.75, 1.25); }},
      {"Silu", [](double x, double, double) { return x / (1 + std::exp(-x)); }},
      {"Add", [](double x, double y, double) { return x + y; }},
      {"Sub", [](double x, double y, double) { return x - y; }},
      {"Max", [](double x, double y, double) { return std::max(x, y); }},
      {"Min", [](double x, double y, double) { return std::min(x, y); }},
      {"PRelu", [](double x, double y, double) { return x < 0 ? x * y : x; }},
      {"Where", [](double c, double x, double y) { return c != 0 ? x : y; }}};
  return kFunctions;
}

const Function& FunctionOf(const std::string& name) {
  return *std::find_if(Functions().begin(), Functions().end(),
                       [&](const Function& f) { return f.name == name; });
}

struct Program {
  FusedProgram fused;
  std::vector<Tensor> inputs;
};

// Input 0 has the result's shape; the next is truth values; others broadcast. Functions of one
// operand read what certainly has the result's shape.
Program RandomProgram(std::mt19937& random, const Shape& shape, int steps) {
  Program p;
  const auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  const auto smaller = [&] {
    Shape s = shape;
    for (int i = 0; i < s.rank(); ++i) s[i] = pick(2) == 0 ? 1 : s[i];
    while (s.rank() > 0 && s[0] == 1 && pick(2) == 0) s.Erase(0);
    return s;
  };
  p.inputs.push_back(RandomTensor(DType::kFloat, shape, -2, 2, random()));
  p.inputs.push_back(RandomTensor(DType::kBool, smaller(), 0, 1, random()));
  for (int i = 0; i < 3; ++i) {
    p.inputs.push_back(RandomTensor(DType::kFloat, smaller(), -1, 1, random()));
  }
  const auto inputs = static_cast<int64_t>(p.inputs.size());
  for (int s = 0; s < steps; ++s) {
    // The first and every second read a result before them, so that results have the full shape.
    const auto full = [&]() -> int64_t { return s == 0 ? 0 : inputs + pick(s); };
    const auto any = [&] {
      const int64_t at = pick(inputs - 1 + s);
      return at == 0 ? 0 : at + 1;
    };
    FusedStep step;
    step.name = Functions()[pick(static_cast<int64_t>(Functions().size()))].name;
    if (s + 1 == steps) step.name = "Where";  // so that every program reads the truth values
    const int operands = FindFusable(step.name)->operands;
    if (operands == 3) step.operands = {1, full(), any()};
    if (operands == 2) step.operands = {full(), any(), -1};
    if (operands == 1) step.operands = {full(), -1, -1};
    if (operands == 2 && pick(2) == 0 && step.name != "PRelu") {
      std::swap(step.operands[0], step.operands[1]);
    }
    if (step.name == "Clip") step.alpha = -0.75f, step.beta = 1.25f;
    p.fused.steps.push_back(step);
  }
  return p;
}

std::vector<double> Spread(const Tensor& t, const Shape& shape) {
  const std::vector<double> values = AsDoubles(t);
  std::vector<double> out(static_cast<size_t>(shape.NumElements()));
  const int missing = shape.rank() - t.shape().rank();
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0, stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const int64_t index = rest % shape[axis];
      rest /= shape[axis];
      if (axis < missing) continue;
      const int64_t own = t.shape()[axis - missing];
      if (own != 1) at += index * stride;
      stride *= own;
    }
    out[i] = values[static_cast<size_t>(at)];
  }
  return out;
}

std::vector<double> Reference(const Program& p, const Shape& shape) {
  std::vector<std::vector<double>> values;
  for (const Tensor& t : p.inputs) values.push_back(Spread(t, shape));
  for (const FusedStep& step : p.fused.steps) {
    std::vector<double> out(static_cast<size_t>(shape.NumElements()));
    const auto at = [&](int k, size_t i) {
      return step.operands[k] < 0 ? 0.0 : values[static_cast<size_t>(step.operands[k])][i];
    };
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = FunctionOf(step.name).value(at(0, i), at(1, i), at(2, i));
    }
    values.push_back(std::move(out));
  }
  return values.back();
}

// The same operators, one node each.
Tensor OneByOne(const Program& p) {
  std::vector<Tensor> values = p.inputs;
  for (const FusedStep& step : p.fused.steps) {
    OperatorCall call{step.name};
    if (step.name == "Silu") call.domain = "chairlift";
    for (int64_t operand : step.operands) {
      if (operand >= 0) call.inputs.push_back(values[static_cast<size_t>(operand)]);
    }
    if (step.name == "Clip") {
      call.inputs.push_back(Tensor::Scalar(step.alpha));
      call.inputs.push_back(Tensor::Scalar(step.beta));
    }
    auto out = RunOperator(call);
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return {};
    values.push_back((*out)[0]);
  }
  return values.back();
}

OperatorCall CallOf(const Program& p) {
  OperatorCall call{.name = "FusedElementwise", .inputs = p.inputs, .domain = "chairlift"};
  p.fused.Store(call.attributes);
  return call;
}

TEST(FusedElementwiseTest, RandomProgramsComputeWhatTheirOperatorsDo) {
  const Shape shapes[] = {{},        {1},        {7},      {0},          {3, 0, 2}, {2, 3, 5, 1},
                          {1, 1, 1}, {6, 1, 17}, {4, 255}, {3, 1024},    {2, 1025}, {5000},
                          {301, 16}, {2, 5001},  {70, 33}, {2, 9, 7, 5}, {1200, 3}, {3, 90000}};
  std::mt19937 random(101);
  for (const Shape& shape : shapes) {
    for (int steps : {1, 2, 5, FusedProgram::kMaxSteps}) {
      if (shape.NumElements() > 100000 && steps > 5) continue;
      SCOPED_TRACE(shape.ToString() + ", steps " + std::to_string(steps));
      const Program p = RandomProgram(random, shape, steps);
      ThreadTeam team(steps % 2 + 1);
      auto out = RunOperator(CallOf(p), &team);
      ASSERT_TRUE(out.ok()) << out.status();
      ASSERT_EQ((*out)[0].shape(), shape);
      const Tensor same = OneByOne(p);
      const std::vector<double> want = Reference(p, shape);
      for (int64_t i = 0; i < same.size(); ++i) {
        const float got = (*out)[0].data<float>()[i];
        ASSERT_EQ(got, same.data<float>()[i]) << "element " << i;
        ASSERT_NEAR(got, want[i], 1e-5 * (1 + std::abs(want[i]))) << "element " << i;
      }
    }
  }
}

// A Clip with one end leaves infinities beyond the other.
TEST(FusedElementwiseTest, ClipsWithoutAnEndKeepInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor zero = Tensor::Scalar<float>(0);
  const ValueInfo x{DType::kFloat, SymbolicShape(Shape{2}), nullptr, {}};
  const ValueInfo low{DType::kFloat, SymbolicShape(Shape{}), &zero, {}};
  const OperatorDef* clip = OperatorRegistry::Builtin().Find("", "Clip");
  const auto at_least = clip->step({}, std::vector<ValueInfo>{x, low});
  ASSERT_TRUE(at_least);
  Program p;
  p.inputs = {Tensor::Of<float>({3}, {inf, -inf, 1})};
  p.fused.steps = {*at_least};
  const auto out = RunOperator(CallOf(p));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(AsDoubles((*out)[0]), (std::vector<double>{inf, 0, 1}));
}

TEST(FusedElementwiseTest, ChannelBlocked) {
  std::mt19937 random(102);
  const Shape shape{2, 2 * ChannelBlock(), 5, 7};
  Program p;
  p.inputs = {RandomTensor(DType::kFloat, shape, -2, 2, 1),
              RandomTensor(DType::kFloat, Shape{2 * ChannelBlock(), 1, 1}, -1, 1, 2),
              RandomTensor(DType::kFloat, shape, -2, 2, 3)};
  p.fused.steps = {{"Mul", {0, 1, -1}}, {"Tanh", {3, -1, -1}}, {"Add", {4, 2, -1}}};
  OperatorCall call = CallOf(p);
  call.blocked = {.inputs = 0b101, .outputs = 1};
  auto out = RunOperator(call);
  ASSERT_TRUE(out.ok()) << out.status();
  const Tensor same = OneByOne(p);
  for (int64_t i = 0; i < same.size(); ++i) {
    ASSERT_EQ((*out)[0].data<float>()[i], same.data<float>()[i]) << "element " << i;
  }
}

// Whatever the function makes of zeros, and of what others have there.
TEST(FusedElementwiseTest, WhatFillsUpTheLastBlockStaysZero) {
  const Shape shape{2, 24, 5, 7};
  const std::vector<std::vector<FusedStep>> programs = {
      {{"Mul", {0, 1, -1}}, {"Tanh", {3, -1, -1}}, {"Add", {4, 2, -1}}},
      {{"Mul", {0, 1, -1}}, {"Sigmoid", {3, -1, -1}}, {"Add", {4, 2, -1}}},
      {{"Div", {0, 1, -1}}, {"Add", {3, 2, -1}}, {"Log", {4, -1, -1}}}};
  for (const Shape& third : {shape, Shape{5, 7}, Shape{}}) {
    for (const auto& steps : programs) {
      Program p;
      p.inputs = {RandomTensor(DType::kFloat, shape, 1, 2, 1),
                  RandomTensor(DType::kFloat, Shape{1, 24, 1, 1}, 1, 2, 2),
                  RandomTensor(DType::kFloat, third, 1, 2, 3)};
      p.fused.steps = steps;
      OperatorCall call = CallOf(p);
      call.blocked = {.inputs = third == shape ? 0b111u : 0b011u, .outputs = 1};
      auto out = RunOperator(call);  // looks at what fills up
      ASSERT_TRUE(out.ok()) << out.status();
      const Tensor same = OneByOne(p);
      for (int64_t i = 0; i < same.size(); ++i) {
        ASSERT_EQ((*out)[0].data<float>()[i], same.data<float>()[i]) << "element " << i;
      }
    }
  }
}

TEST(FusedElementwiseTest, WhatIsNoProgramIsRefused) {
  const Tensor x = RandomTensor(DType::kFloat, Shape{3}, -1, 1, 1);
  const Tensor truth = RandomTensor(DType::kBool, Shape{3}, 0, 1, 1);
  const auto code = [](std::vector<Tensor> inputs, std::vector<FusedStep> steps) {
    return RunOperator(CallOf({{std::move(steps)}, std::move(inputs)})).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({x}, {{"Relu", {0, -1, -1}}}), absl::StatusCode::kOk);
  EXPECT_EQ(code({x}, {}), kInvalid);
  EXPECT_EQ(code({x}, {{"MatMul", {0, 0, -1}}}), kInvalid);
  EXPECT_EQ(code({x}, {{"Relu", {1, -1, -1}}}), kInvalid);      // itself
  EXPECT_EQ(code({x}, {{"Relu", {-1, -1, -1}}}), kInvalid);     // nothing
  EXPECT_EQ(code({x}, {{"Relu", {0, 0, -1}}}), kInvalid);       // too much
  EXPECT_EQ(code({truth}, {{"Relu", {0, -1, -1}}}), kInvalid);  // not a number
  EXPECT_EQ(code({x}, {{"Where", {0, 0, 0}}}), kInvalid);       // both truth and number
  EXPECT_EQ(code({truth, x}, {{"Relu", {1, -1, -1}}, {"Where", {2, 1, 1}}}), kInvalid);
  // A function of one operand cannot repeat it.
  const Tensor row = RandomTensor(DType::kFloat, Shape{1}, -1, 1, 1);
  EXPECT_EQ(code({x, row}, {{"Relu", {1, -1, -1}}, {"Add", {0, 2, -1}}}), kInvalid);
  EXPECT_EQ(code({x}, std::vector<FusedStep>(FusedProgram::kMaxSteps + 1, {"Relu", {0, -1, -1}})),
            kInvalid);
}

}  // namespace
}  // namespace chairlift
