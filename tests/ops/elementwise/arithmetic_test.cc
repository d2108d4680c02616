// Broadcast arithmetic against nested loops in double, for every numeric type.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;

// The element of `t` at output position `index`.
double At(const std::vector<double>& values, const Shape& shape,
          const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t at = index[index.size() - shape.rank() + i];
    offset = offset * shape[i] + (shape[i] == 1 ? 0 : at);
  }
  return values[offset];
}

constexpr DType kEveryType[] = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                                DType::kInt8,  DType::kInt16,  DType::kInt32,   DType::kInt64,
                                DType::kUInt8, DType::kUInt16, DType::kUInt32,  DType::kUInt64,
                                DType::kBool};

struct BinaryCase {
  const char* name;
  std::function<double(double, double)> reference;
  TypeSet types = kNumericTypes;
  Attributes attributes = {};
  // Second operands are in [-low, -1], or in [1, |low|] where unsigned or low is negative.
  double low = 5;
};
Attributes With(const char* name, AttributeValue value) {
  Attributes a;
  a.Set(name, std::move(value));
  return a;
}
int64_t Int(double x) { return static_cast<int64_t>(x); }

class BinaryTest : public ::testing::TestWithParam<BinaryCase> {};

TEST_P(BinaryTest, BroadcastsLikeNestedLoops) {
  const struct {
    Shape a, b, out;
  } shapes[] = {
      {{}, {}, {}},
      {{5}, {}, {5}},
      {{}, {2, 3}, {2, 3}},
      {{0}, {1}, {0}},
      {{3, 1}, {0}, {3, 0}},
      {{17}, {17}, {17}},
      {{4, 19}, {19}, {4, 19}},
      {{4, 19}, {4, 1}, {4, 19}},
      {{1, 19}, {4, 1}, {4, 19}},
      {{2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}},
      {{2, 1, 4, 1}, {3, 1, 5}, {2, 3, 4, 5}},
      {{3, 1, 5, 1, 2}, {2, 1, 4, 1}, {3, 2, 5, 4, 2}},
      {{2, 3, 1, 1}, {2, 3, 7, 9}, {2, 3, 7, 9}},
  };
  for (DType dtype : kEveryType) {
    if (!GetParam().types.Contains(dtype)) continue;
    const double low = std::abs(GetParam().low);
    const bool is_signed = !kUnsignedTypes.Contains(dtype) && GetParam().low > 0;
    for (const auto& [a_shape, b_shape, out_shape] : shapes) {
      const Tensor a = RandomTensor(dtype, a_shape, 5, 12, 1);
      const Tensor b = RandomTensor(dtype, b_shape, is_signed ? -low : 1, is_signed ? -1 : low, 2);
      auto y = RunOperator({GetParam().name, GetParam().attributes, {a, b}});
      ASSERT_TRUE(y.ok()) << y.status();
      ASSERT_EQ((*y)[0].shape(), out_shape);
      const auto av = AsDoubles(a), bv = AsDoubles(b), out = AsDoubles((*y)[0]);
      std::vector<int64_t> index(out_shape.rank(), 0);
      for (double actual : out) {
        double expected = GetParam().reference(At(av, a_shape, index), At(bv, b_shape, index));
        double allowed = 0;
        if (kIntegerTypes.Contains(dtype)) {
          expected = std::trunc(expected);
        } else {
          allowed = 0x1p-25 * (dtype == DType::kFloat16) +
                    std::abs(expected) * (dtype == DType::kBFloat16  ? 0x1p-8
                                          : dtype == DType::kFloat16 ? 0x1p-11
                                          : dtype == DType::kFloat   ? 0x1p-23
                                                                     : 0);
        }
        ASSERT_NEAR(actual, expected, allowed) << DTypeName(dtype);
        for (int i = out_shape.rank() - 1; i >= 0 && ++index[i] == out_shape[i]; --i) index[i] = 0;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, BinaryTest,
    ::testing::Values(
        BinaryCase{"Add", [](double x, double y) { return x + y; }},
        BinaryCase{"Sub", [](double x, double y) { return x - y; }},
        BinaryCase{"Mul", [](double x, double y) { return x * y; }},
        BinaryCase{"Div", [](double x, double y) { return x / y; }},
        BinaryCase{"Max", [](double x, double y) { return std::max(x, y); }},
        BinaryCase{"Min", [](double x, double y) { return std::min(x, y); }},
        BinaryCase{"Sum", [](double x, double y) { return x + y; }, kFloatTypes},
        BinaryCase{"Mean", [](double x, double y) { return (x + y) / 2; }, kFloatTypes},
        BinaryCase{"Pow", [](double x, double y) { return std::pow(x, y); },
                   kFloatTypes | kIndexTypes},
        BinaryCase{"Mod", [](double x, double y) { return x - y * std::floor(x / y); },
                   kIntegerTypes},
        BinaryCase{"Mod", [](double x, double y) { return std::fmod(x, y); }, kNumericTypes,
                   With("fmod", int64_t{1})},
        BinaryCase{"BitShift", [](double x, double y) { return Int(x) << Int(y); }, kUnsignedTypes,
                   With("direction", std::string("LEFT")), 4},
        BinaryCase{"BitShift", [](double x, double y) { return Int(x) >> Int(y); }, kUnsignedTypes,
                   With("direction", std::string("RIGHT"))},
        BinaryCase{"BitwiseAnd", [](double x, double y) { return Int(x) & Int(y); }, kIntegerTypes},
        BinaryCase{"BitwiseOr", [](double x, double y) { return Int(x) | Int(y); }, kIntegerTypes},
        BinaryCase{"BitwiseXor", [](double x, double y) { return Int(x) ^ Int(y); }, kIntegerTypes},
        BinaryCase{"And", [](double x, double y) { return x && y; }, kBoolType},
        BinaryCase{"Or", [](double x, double y) { return x || y; }, kBoolType},
        BinaryCase{"Xor", [](double x, double y) { return x != y; }, kBoolType},
        BinaryCase{"Equal", [](double x, double y) { return x == y; }, kAllTypes, {}, -9},
        BinaryCase{"Less", [](double x, double y) { return x < y; }, kNumericTypes, {}, -9},
        BinaryCase{"LessOrEqual", [](double x, double y) { return x <= y; }, kNumericTypes, {}, -9},
        BinaryCase{"Greater", [](double x, double y) { return x > y; }, kNumericTypes, {}, -9},
        BinaryCase{
            "GreaterOrEqual", [](double x, double y) { return x >= y; }, kNumericTypes, {}, -9}),
    [](const auto& info) { return info.param.name + std::to_string(info.index); });

TEST(ArithmeticTest, FloorRemaindersOfFloatsHaveTheDivisorsSign) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::Of<float>({8}, {5, -5, 5, -5, 4, -4, 2, -2});
  const Tensor y = Tensor::Of<float>({8}, {3, 3, -3, -3, -2, 2, kInf, kInf});
  auto r = RunOperator({"Mod", {}, {x, y}});
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(AsDoubles((*r)[0]), (std::vector<double>{2, 1, -1, -2, 0, 0, 2, kInf}));
  EXPECT_TRUE(std::signbit((*r)[0].data<float>()[4]));
}

TEST(ArithmeticTest, SignedIntegersShiftWithTheirSign) {
  const Tensor x = Tensor::Of<int32_t>({5}, {-8, 7, -1, 1, -8});
  const Tensor y = Tensor::Of<int32_t>({5}, {1, 1, 40, 31, -1});
  auto right = RunOperator({"BitShift", With("direction", std::string("RIGHT")), {x, y}});
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(AsDoubles((*right)[0]), (std::vector<double>{-4, 3, -1, 0, -1}));
  auto left = RunOperator({"BitShift", With("direction", std::string("LEFT")), {x, y}});
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(AsDoubles((*left)[0]), (std::vector<double>{-16, 14, 0, -2147483648.0, 0}));
}

TEST(BitCastTest, KeepsTheBytes) {
  const Tensor x = Tensor::Of<float>({2}, {1.0f, -2.0f});
  auto y = RunOperator({"BitCast", With("to", int64_t{6}), {x}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].dtype(), DType::kInt32);
  EXPECT_EQ((*y)[0].data<int32_t>()[0], 0x3f800000);
  EXPECT_FALSE(RunOperator({"BitCast", With("to", int64_t{7}), {x}}).ok());
  auto truth = RunOperator({"BitCast", With("to", int64_t{9}), {Tensor::Of<uint8_t>({2}, {0, 7})}});
  ASSERT_TRUE(truth.ok()) << truth.status();
  EXPECT_EQ(*static_cast<const uint8_t*>((*truth)[0].raw()), 0);
  EXPECT_EQ(static_cast<const uint8_t*>((*truth)[0].raw())[1], 1);
}

TEST(ArithmeticTest, IntegerDivisionNeverTraps) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  auto y = RunOperator(
      {"Div",
       {},
       {Tensor::Of<int32_t>({3}, {7, kMin, kMin}), Tensor::Of<int32_t>({3}, {0, -1, 2})}});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[0]), (std::vector<double>{0, kMin, kMin / 2}));
}

TEST(ArithmeticTest, RefusesShapesThatDoNotBroadcastAndMixedTypes) {
  auto shapes =
      RunOperator({"Add", {}, {Tensor::Of<float>({2}, {1, 2}), Tensor::Of<float>({3}, {1, 2, 3})}});
  EXPECT_EQ(shapes.status().code(), absl::StatusCode::kInvalidArgument);
  auto types =
      RunOperator({"Add", {}, {Tensor::Of<float>({1}, {1}), Tensor::Of<int32_t>({1}, {1})}});
  EXPECT_EQ(types.status().code(), absl::StatusCode::kInvalidArgument);
}

// Claims parts from the back, under changing worker numbers.
class BackwardsTeam : public Team {
 public:
  int width() const override { return 3; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    for (int p = parts - 1; p >= 0; --p) body(p, p % 3);
    parts_ += parts;
  }
  int parts_ = 0;
};

TEST(ArithmeticTest, LargeTensorsAreSharedByTheTeam) {
  const struct {
    Shape a, b;
  } shapes[] = {{{200001}, {200001}},
                {{3, 100003}, {3, 1}},
                {{401, 501}, {501}},
                {{2, 64, 40, 41}, {64, 1, 1}}};
  for (const auto& [a_shape, b_shape] : shapes) {
    const Tensor a = RandomTensor(DType::kFloat, a_shape, -1, 1, 3);
    const Tensor b = RandomTensor(DType::kFloat, b_shape, -1, 1, 4);
    BackwardsTeam team;
    auto alone = RunOperator({"Mul", {}, {a, b}});
    auto shared = RunOperator({"Mul", {}, {a, b}}, &team);
    ASSERT_TRUE(alone.ok() && shared.ok());
    EXPECT_GT(team.parts_, 1);
    EXPECT_EQ(AsDoubles((*alone)[0]), AsDoubles((*shared)[0]));
  }
}

std::vector<Dim> InferElements(const char* name, std::vector<Dim> x, std::vector<Dim> y,
                               DType dtype = DType::kInt64, const Attributes& attributes = {}) {
  const auto info = [dtype](std::vector<Dim> elements) {
    const auto count = static_cast<int64_t>(elements.size());
    return ValueInfo{dtype, SymbolicShape(Shape{count}), nullptr, std::move(elements)};
  };
  std::vector<ValueInfo> inputs = {info(std::move(x))};
  if (!y.empty()) inputs.push_back(info(std::move(y)));
  InferContext context(attributes, inputs, 1);
  EXPECT_TRUE(OperatorRegistry::Builtin().Find("", name)->infer(context).ok());
  return context.outputs()[0].elements.value_or(std::vector<Dim>{});
}

TEST(ArithmeticTest, ShapeArithmeticKeepsNumbersAndUntouchedSymbols) {
  const auto sum =
      InferElements("Add", {Dim(3), Dim::Symbol("n"), Dim::Symbol("n")}, {Dim(4), Dim(0), Dim(1)});
  ASSERT_EQ(sum.size(), 3u);
  EXPECT_TRUE(sum[0].Same(Dim(7)));
  EXPECT_TRUE(sum[1].Same(Dim::Symbol("n")));
  EXPECT_FALSE(sum[2].known() || sum[2].is_symbol());
  const auto product = InferElements("Mul", {Dim(3), Dim::Symbol("n")}, {Dim(1)});
  ASSERT_EQ(product.size(), 2u);
  EXPECT_TRUE(product[0].Same(Dim(3)));
  EXPECT_TRUE(product[1].Same(Dim::Symbol("n")));
  const auto quotient = InferElements("Div", {Dim(9)}, {Dim(2)});
  ASSERT_EQ(quotient.size(), 1u);
  EXPECT_TRUE(quotient[0].Same(Dim(4)));
}

// A 32-bit product wraps at run time.
TEST(ArithmeticTest, ShapeArithmeticKeepsOnlyWhatTheTypeHolds) {
  const Dim n = Dim::Symbol("n"), large(65536);
  const auto unknown = [](const std::vector<Dim>& elements) {
    return elements.size() == 1 && !elements[0].known() && !elements[0].is_symbol();
  };
  EXPECT_TRUE(InferElements("Mul", {large}, {large})[0].Same(Dim(int64_t{1} << 32)));
  EXPECT_TRUE(unknown(InferElements("Mul", {large}, {large}, DType::kInt32)));
  EXPECT_TRUE(InferElements("Mul", {n}, {large}, DType::kInt32)[0].Same(Dim::Symbol("65536*n")));
  EXPECT_TRUE(unknown(InferElements("Mul", {Dim::Symbol("65536*n")}, {large}, DType::kInt32)));
  EXPECT_TRUE(unknown(InferElements("Mul", {n}, {Dim(int64_t{1} << 61)})));
  Attributes to;
  to.Set("to", int64_t{6});
  EXPECT_TRUE(unknown(InferElements("Cast", {Dim(int64_t{1} << 32)}, {}, DType::kInt64, to)));
  EXPECT_TRUE(unknown(InferElements("Cast", {Dim::Symbol("99999999*n")}, {}, DType::kInt64, to)));
  EXPECT_TRUE(InferElements("Cast", {n}, {}, DType::kInt64, to)[0].Same(n));
}

}  // namespace
}  // namespace chairlift
