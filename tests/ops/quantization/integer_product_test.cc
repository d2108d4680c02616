// MatMulInteger, QLinearMatMul, ConvInteger and QLinearConv against sums over their definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using testing::OperatorCall;
using testing::RunOperator;

Tensor RandomBytes(bool is_signed, const Shape& shape, std::mt19937& random) {
  Tensor t = Tensor::Allocate(is_signed ? DType::kInt8 : DType::kUInt8, shape);
  std::uniform_int_distribution<int> uniform(0, 255);
  for (int64_t i = 0; i < t.size(); ++i) {
    static_cast<uint8_t*>(t.raw())[i] = static_cast<uint8_t>(uniform(random));
  }
  return t;
}
Tensor RandomScales(const Shape& shape, float low, float high, std::mt19937& random) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::uniform_real_distribution<float> uniform(low, high);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = uniform(random);
  return t;
}
int64_t At(const Tensor& t, int64_t i) {
  return t.dtype() == DType::kInt8 ? t.data<int8_t>()[i] : t.data<uint8_t>()[i];
}
// Entry `line` of matrix `matrix` of a parameter: absent, one, one a line, or one a line a matrix.
int64_t Entry(const Tensor& t, int64_t line, int64_t lines, int64_t matrix) {
  return t.size() == 1 ? 0 : t.size() == lines ? line : matrix * lines + line;
}
int64_t Zero(const Tensor& t, int64_t line, int64_t lines, int64_t matrix) {
  return t.present() ? At(t, Entry(t, line, lines, matrix)) : 0;
}
double Nearest(double x, int64_t zero, bool is_signed) {
  const double low = is_signed ? -128 : 0;
  return std::min(std::max(std::nearbyint(x) + static_cast<double>(zero), low), low + 255);
}
// Whether a rounded result may be either of two values because x lies at a tie, within the rounding
// of float scales.
void ExpectQuantized(const Tensor& got, int64_t i, double x, int64_t zero, bool is_signed) {
  const double slack = std::abs(x) * 1e-6;
  const auto value = static_cast<double>(At(got, i));
  EXPECT_GE(value, Nearest(x - slack, zero, is_signed)) << "element " << i << " of " << x;
  EXPECT_LE(value, Nearest(x + slack, zero, is_signed)) << "element " << i << " of " << x;
}

struct MatMulCase {
  Shape a, b, y;
  int64_t m, n, k;
  // Matrices of a and b for each of y.
  std::vector<std::pair<int64_t, int64_t>> matrices;
};
const std::vector<MatMulCase>& MatMulCases() {
  static const auto* const kCases = new std::vector<MatMulCase>{
      {Shape{3, 5}, Shape{5, 7}, Shape{3, 7}, 3, 7, 5, {{0, 0}}},
      {Shape{1, 1}, Shape{1, 1}, Shape{1, 1}, 1, 1, 1, {{0, 0}}},
      {Shape{2, 0}, Shape{0, 3}, Shape{2, 3}, 2, 3, 0, {{0, 0}}},
      {Shape{0, 4}, Shape{4, 3}, Shape{0, 3}, 0, 3, 4, {{0, 0}}},
      {Shape{17, 64}, Shape{64, 48}, Shape{17, 48}, 17, 48, 64, {{0, 0}}},
      {Shape{4, 131}, Shape{131, 515}, Shape{4, 515}, 4, 515, 131, {{0, 0}}},
      {Shape{2, 3, 5}, Shape{5, 7}, Shape{2, 3, 7}, 3, 7, 5, {{0, 0}, {1, 0}}},
      {Shape{3, 5}, Shape{2, 5, 7}, Shape{2, 3, 7}, 3, 7, 5, {{0, 0}, {0, 1}}},
      {Shape{2, 1, 3, 5},
       Shape{2, 5, 4},
       Shape{2, 2, 3, 4},
       3,
       4,
       5,
       {{0, 0}, {0, 1}, {1, 0}, {1, 1}}},
      {Shape{6}, Shape{6, 4}, Shape{4}, 1, 4, 6, {{0, 0}}},
      {Shape{3, 6}, Shape{6}, Shape{3}, 3, 1, 6, {{0, 0}}},
  };
  return *kCases;
}
int64_t Sum(const MatMulCase& p, const Tensor& a, const Tensor& a_zero, const Tensor& b,
            const Tensor& b_zero, std::pair<int64_t, int64_t> matrix, int64_t r, int64_t c) {
  int64_t sum = 0;
  for (int64_t i = 0; i < p.k; ++i) {
    sum += (At(a, (matrix.first * p.m + r) * p.k + i) - Zero(a_zero, r, p.m, matrix.first)) *
           (At(b, (matrix.second * p.k + i) * p.n + c) - Zero(b_zero, c, p.n, matrix.second));
  }
  return sum;
}
// Parameters by kind: 0 absent, 1 scalar, 2 one entry, 3 one a line, 4 one a line of every matrix
// (where the operand is a stack of matrices).
Shape ParameterShape(int kind, const Shape& operand, bool is_a) {
  const int64_t lines = operand.rank() == 1 ? 1 : operand[operand.rank() - (is_a ? 2 : 1)];
  if (kind == 1) return Shape{};
  if (kind == 2) return Shape{1};
  if (kind == 3 || operand.rank() < 3) return Shape{lines};
  Shape shape = operand;
  shape[operand.rank() - (is_a ? 1 : 2)] = 1;
  return shape;
}

TEST(MatMulIntegerTest, SumsOfShiftedProducts) {
  std::mt19937 random(41);
  for (const MatMulCase& p : MatMulCases()) {
    for (int options = 0; options < 100; ++options) {
      const bool a_signed = options % 2 != 0;
      const bool b_signed = options / 2 % 2 != 0;
      const int a_kind = options / 4 % 5;
      const int b_kind = options / 20;
      SCOPED_TRACE(fmt::format("{} x {}, signed {} {}, zero points {} {}", p.a.ToString(),
                               p.b.ToString(), a_signed, b_signed, a_kind, b_kind));
      const Tensor a = RandomBytes(a_signed, p.a, random);
      const Tensor b = RandomBytes(b_signed, p.b, random);
      Tensor a_zero;
      Tensor b_zero;
      if (a_kind > 0) a_zero = RandomBytes(a_signed, ParameterShape(a_kind, p.a, true), random);
      if (b_kind > 0) b_zero = RandomBytes(b_signed, ParameterShape(b_kind, p.b, false), random);
      OperatorCall call{.name = "MatMulInteger", .inputs = {a, b, a_zero, b_zero}};
      if (options % 3 == 0) call.constants = {1};
      if (options % 3 == 1) call.constants = {1, 3};
      const auto got = RunOperator(call);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ((*got)[0].shape(), p.y);
      const int32_t* y = (*got)[0].data<int32_t>();
      for (const auto& matrix : p.matrices) {
        for (int64_t r = 0; r < p.m; ++r) {
          for (int64_t c = 0; c < p.n; ++c) {
            ASSERT_EQ(*y++, Sum(p, a, a_zero, b, b_zero, matrix, r, c)) << r << ", " << c;
          }
        }
      }
    }
  }
}

TEST(QLinearMatMulTest, RoundsTheScaledSum) {
  std::mt19937 random(42);
  for (const MatMulCase& p : MatMulCases()) {
    for (int options = 0; options < 24; ++options) {
      const bool is_signed = options % 2 != 0;
      const int a_kind = 1 + options / 2 % 4;
      const int b_kind = 1 + options / 8;
      SCOPED_TRACE(fmt::format("{} x {}, signed {}, parameters {} {}", p.a.ToString(),
                               p.b.ToString(), is_signed, a_kind, b_kind));
      const Shape a_shape = ParameterShape(a_kind, p.a, true);
      const Shape b_shape = ParameterShape(b_kind, p.b, false);
      const Tensor a = RandomBytes(is_signed, p.a, random);
      const Tensor b = RandomBytes(true, p.b, random);
      const Tensor a_zero = RandomBytes(is_signed, a_shape, random);
      const Tensor b_zero = RandomBytes(true, b_shape, random);
      const Tensor a_scale = RandomScales(a_shape, 0.01f, 0.02f, random);
      const Tensor b_scale = RandomScales(b_shape, 0.01f, 0.02f, random);
      const Tensor y_zero = RandomBytes(is_signed, Shape{}, random);
      const Tensor y_scale = Tensor::Scalar(0.05f * std::sqrt(static_cast<float>(p.k + 1)));
      const auto got =
          RunOperator({.name = "QLinearMatMul",
                       .inputs = {a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero}});
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ((*got)[0].shape(), p.y);
      int64_t i = 0;
      for (const auto& matrix : p.matrices) {
        for (int64_t r = 0; r < p.m; ++r) {
          for (int64_t c = 0; c < p.n; ++c, ++i) {
            const double sa = a_scale.data<float>()[Entry(a_scale, r, p.m, matrix.first)];
            const double sb = b_scale.data<float>()[Entry(b_scale, c, p.n, matrix.second)];
            const auto sum = static_cast<double>(Sum(p, a, a_zero, b, b_zero, matrix, r, c));
            ExpectQuantized((*got)[0], i, sum * sa * sb / *y_scale.data<float>(), At(y_zero, 0),
                            is_signed);
          }
        }
      }
    }
  }
}

// Parts last first, each under a worker number of its own.
class BackwardTeam final : public Team {
 public:
  int width() const override { return 3; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    for (int p = parts; p-- > 0;) body(p, p);
    calls_ += parts;
  }
  int calls() const { return calls_; }

 private:
  int calls_ = 0;
};

TEST(MatMulIntegerTest, ATeamAnswersAsOneWorkerDoes) {
  std::mt19937 random(47);
  for (bool constant : {false, true}) {
    OperatorCall call{
        .name = "MatMulInteger",
        .inputs = {RandomBytes(false, Shape{2, 65, 129}, random),
                   RandomBytes(true, Shape{2, 129, 170}, random),
                   RandomBytes(false, Shape{}, random), RandomBytes(true, Shape{170}, random)}};
    if (constant) call.constants = {1, 3};
    BackwardTeam team;
    const auto together = RunOperator(call, &team);
    const auto alone = RunOperator(call);
    ASSERT_TRUE(together.ok() && alone.ok());
    EXPECT_EQ(team.calls(), 6);
    EXPECT_THAT((*together)[0].values<int32_t>(),
                ::testing::ElementsAreArray((*alone)[0].values<int32_t>()));
  }
}

TEST(MatMulIntegerTest, OneWeightWithTwoZeroPointsIsWidenedTwice) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", "MatMulInteger");
  const Tensor a = Tensor::Of<uint8_t>(Shape{1, 1}, {2});
  const Tensor b = Tensor::Of<uint8_t>(Shape{1, 1}, {10});
  const Attributes attributes;
  WeightCache weights;
  SoloTeam team;
  for (uint8_t point : {0, 4, 0}) {
    const Tensor zero = Tensor::Scalar(point);
    const TensorDesc inputs[] = {
        {a.dtype(), a.shape()}, {b.dtype(), b.shape()}, {}, {zero.dtype(), zero.shape()}};
    const TensorDesc outputs[] = {{DType::kInt32, Shape{1, 1}}};
    const Tensor* constants[] = {nullptr, &b, nullptr, &zero};
    const auto kernel = def->compile({attributes, inputs, outputs, constants, weights, 1});
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const Tensor scratch =
        Tensor::Allocate(DType::kUInt8, Shape{static_cast<int64_t>((*kernel)->scratch_bytes())});
    int32_t y = 0;
    const void* in[] = {a.raw(), b.raw(), nullptr, zero.raw()};
    void* out[] = {&y};
    ASSERT_TRUE((*kernel)->Run({in, out, const_cast<void*>(scratch.raw()), team, 0}).ok());
    EXPECT_EQ(y, 2 * (10 - point));
  }
}

TEST(ConvIntegerTest, ATeamAnswersAsOneWorkerDoes) {
  std::mt19937 random(48);
  const OperatorCall call{.name = "ConvInteger",
                          .inputs = {RandomBytes(false, Shape{3, 8, 19, 21}, random),
                                     RandomBytes(true, Shape{24, 8, 3, 3}, random),
                                     RandomBytes(false, Shape{}, random)}};
  BackwardTeam team;
  const auto together = RunOperator(call, &team);
  const auto alone = RunOperator(call);
  ASSERT_TRUE(together.ok() && alone.ok());
  EXPECT_EQ(team.calls(), 3);
  EXPECT_THAT((*together)[0].values<int32_t>(),
              ::testing::ElementsAreArray((*alone)[0].values<int32_t>()));
}

TEST(MatMulIntegerTest, WhatDoesNotFitIsRefused) {
  std::mt19937 random(43);
  const auto code = [&](Shape a, Shape b, Tensor a_zero, Tensor b_zero) {
    return RunOperator({.name = "MatMulInteger",
                        .inputs = {RandomBytes(false, a, random), RandomBytes(false, b, random),
                                   std::move(a_zero), std::move(b_zero)}})
        .status()
        .code();
  };
  const auto bytes = [&](bool is_signed, Shape s) { return RandomBytes(is_signed, s, random); };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(Shape{2, 3}, Shape{4, 5}, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{}, Shape{4, 5}, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{2, 2, 3}, Shape{3, 3, 5}, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{2, 3}, Shape{3, 5}, bytes(false, Shape{3}), Tensor()), kBad);
  EXPECT_EQ(code(Shape{2, 3}, Shape{3, 5}, bytes(false, Shape{0}), Tensor()), kBad);
  EXPECT_EQ(code(Shape{2, 3}, Shape{3, 5}, Tensor(), bytes(false, Shape{2})), kBad);
  EXPECT_EQ(code(Shape{2, 3}, Shape{3, 5}, bytes(true, Shape{}), Tensor()), kBad);
}

struct ConvCase {
  Shape x, w;
  int64_t groups = 1;
  std::vector<int64_t> strides, dilations, pads;
};
const std::vector<ConvCase>& ConvCases() {
  static const auto* const kCases = new std::vector<ConvCase>{
      {Shape{1, 1, 3, 3}, Shape{1, 1, 2, 2}, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
      {Shape{2, 3, 7, 5}, Shape{4, 3, 3, 2}, 1, {2, 1}, {1, 2}, {1, 0, 2, 1}},
      {Shape{1, 6, 9}, Shape{4, 3, 3}, 2, {2}, {2}, {3, 1}},
      {Shape{1, 4, 20, 21}, Shape{4, 1, 3, 3}, 4, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {Shape{1, 2, 3, 4, 3}, Shape{3, 2, 2, 2, 2}, 1, {1, 2, 1}, {1, 1, 1}, {0, 1, 0, 1, 0, 1}},
      {Shape{1, 2, 0, 3}, Shape{3, 2, 2, 3}, 1, {1, 1}, {1, 1}, {1, 0, 1, 0}},
      {Shape{0, 2, 4, 4}, Shape{3, 2, 1, 1}, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
      // A channel a group.
      {Shape{2, 3, 17, 19}, Shape{6, 1, 3, 5}, 3, {2, 3}, {1, 2}, {2, 5, 0, 3}},
      {Shape{1, 2, 700}, Shape{2, 1, 4}, 2, {1}, {5}, {20, 7}},
      {Shape{1, 2, 5, 4, 6}, Shape{2, 1, 2, 3, 2}, 2, {1, 2, 1}, {2, 1, 1}, {1, 1, 0, 0, 1, 2}},
      {Shape{1, 2, 3, 2}, Shape{2, 1, 2, 2}, 2, {1, 4}, {1, 1}, {4, 9, 3, 8}},
      {Shape{1, 2, 0, 3}, Shape{2, 1, 2, 3}, 2, {1, 1}, {1, 1}, {1, 0, 1, 0}},
      {Shape{1, 1, 6, 6}, Shape{9, 1, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1, 1, 1}},
  };
  return *kCases;
}
Attributes ConvAttributes(const ConvCase& p) {
  Attributes a;
  a.Set("group", p.groups);
  a.Set("strides", p.strides);
  a.Set("dilations", p.dilations);
  a.Set("pads", p.pads);
  return a;
}
// Calls visit(output element, channel, sum) for all of the output, and returns its shape.
template <typename F>
Shape VisitConv(const ConvCase& p, const Tensor& x, const Tensor& x_zero, const Tensor& w,
                const Tensor& w_zero, F visit) {
  const int rank = static_cast<int>(p.strides.size());
  Shape y{p.x[0], p.w[0]};
  for (int i = 0; i < rank; ++i) {
    y.Append((p.x[i + 2] + p.pads[i] + p.pads[i + rank] - (p.w[i + 2] - 1) * p.dilations[i] - 1) /
                 p.strides[i] +
             1);
  }
  const int64_t positions = y.NumElements(2, y.rank());
  const int64_t taps = p.w.NumElements(2, p.w.rank());
  const int64_t in = p.x.NumElements(2, p.x.rank());
  for (int64_t n = 0; n < y[0]; ++n) {
    for (int64_t m = 0; m < y[1]; ++m) {
      for (int64_t position = 0; position < positions; ++position) {
        int64_t sum = 0;
        for (int64_t c = 0; c < p.w[1]; ++c) {
          for (int64_t tap = 0; tap < taps; ++tap) {
            int64_t offset = 0, stride = 1, o = position, t = tap;
            bool inside = true;
            for (int i = rank; i-- > 0;) {
              const int64_t at =
                  o % y[i + 2] * p.strides[i] + t % p.w[i + 2] * p.dilations[i] - p.pads[i];
              inside = inside && at >= 0 && at < p.x[i + 2];
              offset += at * stride;
              stride *= p.x[i + 2];
              o /= y[i + 2];
              t /= p.w[i + 2];
            }
            if (!inside) continue;
            const int64_t channel = m / (p.w[0] / p.groups) * p.w[1] + c;
            sum += (At(x, (n * p.x[1] + channel) * in + offset) - Zero(x_zero, 0, 1, 0)) *
                   (At(w, (m * p.w[1] + c) * taps + tap) - Zero(w_zero, m, p.w[0], 0));
          }
        }
        visit((n * y[1] + m) * positions + position, m, sum);
      }
    }
  }
  return y;
}

TEST(ConvIntegerTest, SumsOfShiftedProducts) {
  std::mt19937 random(44);
  for (const ConvCase& p : ConvCases()) {
    for (int options = 0; options < 24; ++options) {
      const bool x_signed = options % 2 != 0;
      const bool w_signed = options / 2 % 2 != 0;
      SCOPED_TRACE(fmt::format("{} * {} options {}", p.x.ToString(), p.w.ToString(), options));
      const Tensor x = RandomBytes(x_signed, p.x, random);
      const Tensor w = RandomBytes(w_signed, p.w, random);
      Tensor x_zero;
      Tensor w_zero;
      if (options / 4 % 2 != 0) x_zero = RandomBytes(x_signed, Shape{}, random);
      if (options / 8 == 1) w_zero = RandomBytes(w_signed, Shape{}, random);
      if (options / 8 == 2) w_zero = RandomBytes(w_signed, Shape{p.w[0]}, random);
      const auto got = RunOperator({.name = "ConvInteger",
                                    .attributes = ConvAttributes(p),
                                    .inputs = {x, w, x_zero, w_zero}});
      ASSERT_TRUE(got.ok()) << got.status();
      const Shape y = VisitConv(p, x, x_zero, w, w_zero, [&](int64_t i, int64_t, int64_t sum) {
        EXPECT_EQ((*got)[0].data<int32_t>()[i], sum) << "element " << i;
      });
      ASSERT_EQ((*got)[0].shape(), y);
    }
  }
}

TEST(QLinearConvTest, RoundsTheScaledSumWithItsBias) {
  std::mt19937 random(45);
  for (const ConvCase& p : ConvCases()) {
    for (int options = 0; options < 8; ++options) {
      const bool is_signed = options % 2 != 0;
      const bool has_bias = options / 2 % 2 != 0;
      const Shape by_channel = options / 4 != 0 ? Shape{p.w[0]} : Shape{};
      SCOPED_TRACE(fmt::format("{} * {} options {}", p.x.ToString(), p.w.ToString(), options));
      const Tensor x = RandomBytes(is_signed, p.x, random);
      const Tensor w = RandomBytes(true, p.w, random);
      const Tensor x_zero = RandomBytes(is_signed, Shape{}, random);
      const Tensor w_zero = RandomBytes(true, by_channel, random);
      const Tensor w_scale = RandomScales(by_channel, 0.01f, 0.02f, random);
      const Tensor y_zero = RandomBytes(is_signed, Shape{}, random);
      const float x_scale = 0.03f;
      const float y_scale = 0.25f;
      Tensor bias;
      if (has_bias) {
        bias = Tensor::Allocate(DType::kInt32, Shape{p.w[0]});
        std::uniform_int_distribution<int32_t> uniform(-5000, 5000);
        for (int64_t i = 0; i < bias.size(); ++i) bias.data<int32_t>()[i] = uniform(random);
      }
      const auto got = RunOperator({.name = "QLinearConv",
                                    .attributes = ConvAttributes(p),
                                    .inputs = {x, Tensor::Scalar(x_scale), x_zero, w, w_scale,
                                               w_zero, Tensor::Scalar(y_scale), y_zero, bias}});
      ASSERT_TRUE(got.ok()) << got.status();
      const Shape y = VisitConv(p, x, x_zero, w, w_zero, [&](int64_t i, int64_t m, int64_t sum) {
        if (has_bias) sum += bias.data<int32_t>()[m];
        const double scale =
            static_cast<double>(x_scale) *
            static_cast<double>(w_scale.data<float>()[Entry(w_scale, m, p.w[0], 0)]) /
            static_cast<double>(y_scale);
        ExpectQuantized((*got)[0], i, static_cast<double>(sum) * scale, At(y_zero, 0), is_signed);
      });
      ASSERT_EQ((*got)[0].shape(), y);
    }
  }
}

TEST(ConvIntegerTest, WhatDoesNotFitIsRefused) {
  std::mt19937 random(46);
  const auto code = [&](Shape x, Shape w, int64_t groups, Tensor x_zero, Tensor w_zero) {
    Attributes a;
    a.Set("group", groups);
    return RunOperator({.name = "ConvInteger",
                        .attributes = a,
                        .inputs = {RandomBytes(false, x, random), RandomBytes(false, w, random),
                                   std::move(x_zero), std::move(w_zero)}})
        .status()
        .code();
  };
  const auto bytes = [&](bool is_signed, Shape s) { return RandomBytes(is_signed, s, random); };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 2, 3}, 1, Tensor(), Tensor()), absl::StatusCode::kOk);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 3, 3}, 1, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 2, 3}, 2, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{3, 1, 3}, 2, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 2, 3}, 0, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 2, 9}, 1, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{2, 5}, Shape{2, 2, 3}, 1, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{2, 5}, Shape{2, 2}, 1, Tensor(), Tensor()), kBad);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 2, 3}, 1, bytes(false, Shape{2}), Tensor()), kBad);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 2, 3}, 1, bytes(true, Shape{}), Tensor()), kBad);
  EXPECT_EQ(code(Shape{1, 2, 5}, Shape{2, 2, 3}, 1, Tensor(), bytes(false, Shape{3})), kBad);
}

}  // namespace
}  // namespace chairlift
