// DeformConv against its formula in float64, on random shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;

struct Case {
  int64_t batch, groups, offset_groups, channels, outputs, height, width, kernel_height,
      kernel_width, stride, dilation, pad;
  bool bias, mask;
};

struct Operands {
  Tensor x, w, offset, bias, mask;
  int64_t out_height, out_width;
};

int64_t OutputSize(int64_t in, int64_t kernel, const Case& c) {
  return (in + 2 * c.pad - ((kernel - 1) * c.dilation + 1)) / c.stride + 1;
}

Operands MakeOperands(const Case& c, DType dtype, uint32_t seed) {
  Operands o;
  o.out_height = OutputSize(c.height, c.kernel_height, c);
  o.out_width = OutputSize(c.width, c.kernel_width, c);
  const int64_t taps = c.offset_groups * c.kernel_height * c.kernel_width;
  const auto make = [&](const Shape& shape, double range) {
    return RandomTensor(dtype, shape, -range, range, seed++);
  };
  o.x = make({c.batch, c.channels, c.height, c.width}, 1);
  o.w = make({c.outputs, c.channels / c.groups, c.kernel_height, c.kernel_width}, 1);
  // Far enough for some to leave the image.
  o.offset = make({c.batch, 2 * taps, o.out_height, o.out_width}, 3);
  if (c.bias) o.bias = make({c.outputs}, 1);
  if (c.mask) o.mask = make({c.batch, taps, o.out_height, o.out_width}, 1);
  return o;
}

Attributes MakeAttributes(const Case& c) {
  Attributes a;
  a.Set("group", c.groups);
  a.Set("offset_group", c.offset_groups);
  a.Set("strides", std::vector<int64_t>{c.stride, c.stride});
  a.Set("dilations", std::vector<int64_t>{c.dilation, c.dilation});
  a.Set("pads", std::vector<int64_t>(4, c.pad));
  return a;
}

// The sum, for every output, over all taps; and of the magnitudes of its terms.
std::vector<std::pair<double, double>> Reference(const Case& c, const Operands& o) {
  const std::vector<double> x = AsDoubles(o.x), w = AsDoubles(o.w), offset = AsDoubles(o.offset);
  const std::vector<double> bias = c.bias ? AsDoubles(o.bias) : std::vector<double>();
  const std::vector<double> mask = c.mask ? AsDoubles(o.mask) : std::vector<double>();
  const int64_t positions = o.out_height * o.out_width;
  const int64_t taps = c.kernel_height * c.kernel_width;
  const auto pixel = [&](int64_t n, int64_t channel, double row, double column) {
    if (row < 0 || row >= c.height || column < 0 || column >= c.width) return 0.0;
    return x[static_cast<size_t>(((n * c.channels + channel) * c.height + int64_t(row)) * c.width +
                                 int64_t(column))];
  };
  std::vector<std::pair<double, double>> y;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t m = 0; m < c.outputs; ++m) {
      for (int64_t p = 0; p < positions; ++p) {
        double sum = c.bias ? bias[static_cast<size_t>(m)] : 0, size = std::abs(sum);
        for (int64_t i = 0; i < c.channels / c.groups; ++i) {
          const int64_t channel = m / (c.outputs / c.groups) * (c.channels / c.groups) + i;
          const int64_t own = channel / (c.channels / c.offset_groups);
          for (int64_t tap = 0; tap < taps; ++tap) {
            const int64_t at = (n * c.offset_groups + own) * taps + tap;
            const double down = offset[static_cast<size_t>(2 * at * positions + p)];
            const double across = offset[static_cast<size_t>((2 * at + 1) * positions + p)];
            const double row = static_cast<double>(p / o.out_width * c.stride - c.pad +
                                                   tap / c.kernel_width * c.dilation) +
                               down;
            const double column = static_cast<double>(p % o.out_width * c.stride - c.pad +
                                                      tap % c.kernel_width * c.dilation) +
                                  across;
            double value = 0;
            for (const double r : {std::floor(row), std::floor(row) + 1}) {
              for (const double k : {std::floor(column), std::floor(column) + 1}) {
                value +=
                    (1 - std::abs(row - r)) * (1 - std::abs(column - k)) * pixel(n, channel, r, k);
              }
            }
            const double term =
                value * (c.mask ? mask[static_cast<size_t>(at * positions + p)] : 1) *
                w[static_cast<size_t>((m * (c.channels / c.groups) + i) * taps + tap)];
            sum += term;
            size += std::abs(term);
          }
        }
        y.emplace_back(sum, size);
      }
    }
  }
  return y;
}

testing::OperatorCall Call(const Case& c, const Operands& o) {
  return {.name = "DeformConv",
          .attributes = MakeAttributes(c),
          .inputs = {o.x, o.w, o.offset, o.bias, o.mask}};
}

TEST(DeformConvTest, TakesEachTapFromWhereItsOffsetMovesIt) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random()) % n; };
  for (int round = 0; round < 60; ++round) {
    Case c{};
    c.batch = below(3);
    c.groups = 1 + below(3);
    c.offset_groups = 1 + below(2);
    c.channels = c.groups * c.offset_groups * below(4);
    c.outputs = c.groups * (1 + below(4));
    c.kernel_height = 1 + below(3);
    c.kernel_width = 1 + below(3);
    c.stride = 1 + below(2);
    c.dilation = 1 + below(2);
    c.pad = below(2);
    c.height = 5 + below(6);
    c.width = 5 + below(6);
    c.bias = below(2) == 1;
    c.mask = below(2) == 1;
    const DType dtype = round % 4 == 3 ? DType::kDouble : DType::kFloat;
    const Operands o = MakeOperands(c, dtype, static_cast<uint32_t>(round) * 10);
    testing::ThreadTeam team(3);
    const auto got = RunOperator(Call(c, o), round % 2 == 0 ? nullptr : &team);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].shape(), (Shape{c.batch, c.outputs, o.out_height, o.out_width}));
    const std::vector<double> values = AsDoubles((*got)[0]);
    const auto want = Reference(c, o);
    ASSERT_EQ(values.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(values[i], want[i].first, 2e-6 * (want[i].second + 1)) << round << " at " << i;
    }
  }
}

TEST(DeformConvTest, OffsetsThatAreNoNumbersReadNothing) {
  Case c{.batch = 1,
         .groups = 1,
         .offset_groups = 1,
         .channels = 1,
         .outputs = 1,
         .height = 2,
         .width = 2,
         .kernel_height = 1,
         .kernel_width = 1,
         .stride = 1,
         .dilation = 1,
         .pad = 0,
         .bias = false,
         .mask = false};
  Operands o = MakeOperands(c, DType::kFloat, 1);
  const float values[] = {NAN, INFINITY, -INFINITY, 1e30f};
  for (int i = 0; i < 8; ++i) o.offset.data<float>()[i] = values[i % 4];
  const auto got = RunOperator(Call(c, o));
  ASSERT_TRUE(got.ok()) << got.status();
  for (const double v : AsDoubles((*got)[0])) EXPECT_EQ(v, 0);
}

TEST(DeformConvTest, OperandsThatDoNotFitAreRefused) {
  const Case c{.batch = 1,
               .groups = 1,
               .offset_groups = 1,
               .channels = 2,
               .outputs = 2,
               .height = 5,
               .width = 5,
               .kernel_height = 3,
               .kernel_width = 3,
               .stride = 1,
               .dilation = 1,
               .pad = 1,
               .bias = true,
               .mask = true};
  const Operands good = MakeOperands(c, DType::kFloat, 1);
  ASSERT_TRUE(RunOperator(Call(c, good)).ok());
  const auto refused = [&](Tensor Operands::*operand, const Shape& shape) {
    Operands bad = good;
    bad.*operand = RandomTensor(DType::kFloat, shape, 0, 1, 1);
    return !RunOperator(Call(c, bad)).ok();
  };
  EXPECT_TRUE(refused(&Operands::offset, {1, 18, 5, 4}));
  EXPECT_TRUE(refused(&Operands::offset, {1, 9, 5, 5}));
  EXPECT_TRUE(refused(&Operands::offset, {2, 18, 5, 5}));
  EXPECT_TRUE(refused(&Operands::mask, {1, 18, 5, 5}));
  EXPECT_TRUE(refused(&Operands::bias, {3}));
  EXPECT_TRUE(refused(&Operands::w, {2, 1, 3, 3}));
  Attributes groups = MakeAttributes(c);
  groups.Set("offset_group", int64_t{3});
  auto call = Call(c, good);
  call.attributes = groups;
  EXPECT_FALSE(RunOperator(call).ok());
}

}  // namespace
}  // namespace chairlift
