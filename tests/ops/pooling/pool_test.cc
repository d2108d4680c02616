#include <cmath>
#include <limits>
#include <random>

#include "ops/linear/reference.h"
#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift::testing {
namespace {

struct PoolCase {
  Shape x, out;
  std::vector<int64_t> kernel, strides, dilations, pads;
  bool ceil_mode = false;

  int rank() const { return x.rank() - 2; }
  std::string ToString() const {
    return fmt::format("X {} Y {} kernel {} strides {} dilations {} pads {} ceil {}", x.ToString(),
                       out.ToString(), kernel[0], strides[0], dilations[0], pads[0], ceil_mode);
  }
};

PoolCase RandomCase(std::mt19937& engine, bool blocks) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine);
  };
  PoolCase c;
  c.x = {pick(0, 9) == 0 ? 0 : pick(1, 3), blocks ? pick(8, 50) : pick(1, 5)};
  c.out = c.x;
  c.ceil_mode = pick(0, 1) != 0;
  const int64_t rank = pick(1, 3);
  std::vector<int64_t> pads_end;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t k = pick(1, 4), s = pick(1, 3), d = pick(1, 2);
    const int64_t extent = (k - 1) * d + 1;
    const int64_t begin = pick(0, (k - 1) / 2), end = pick(0, (k - 1) / 2);
    const int64_t in = extent + pick(0, 9);
    c.kernel.push_back(k);
    c.strides.push_back(s);
    c.dilations.push_back(d);
    c.pads.push_back(begin);
    pads_end.push_back(end);
    c.x.Append(in);
    // Windows that start inside the input or the padding before it.
    int64_t out = 0;
    for (int64_t start = -begin; start < in; start += s, ++out) {
      if (!c.ceil_mode && start + extent > in + end) break;
      if (c.ceil_mode && start - s + extent >= in + end && out > 0) break;
    }
    c.out.Append(out);
  }
  c.pads.insert(c.pads.end(), pads_end.begin(), pads_end.end());
  return c;
}

// Calls take(output position, input position or −1 where the tap falls on padding) for every tap of
// every window of a plane; taps beyond the padding are left out.
template <typename F>
void ForTaps(const PoolCase& c, const F& take) {
  const int rank = c.rank();
  int64_t taps = 1;
  for (int64_t k : c.kernel) taps *= k;
  for (int64_t o = 0; o < c.out.NumElements(2, rank + 2); ++o) {
    for (int64_t t = 0; t < taps; ++t) {
      int64_t orest = o, trest = t, at = 0, scale = 1;
      bool inside = true, beyond = false;
      for (int a = rank - 1; a >= 0; --a) {
        const int64_t p =
            orest % c.out[a + 2] * c.strides[a] + trest % c.kernel[a] * c.dilations[a] - c.pads[a];
        orest /= c.out[a + 2];
        trest /= c.kernel[a];
        inside = inside && p >= 0 && p < c.x[a + 2];
        beyond = beyond || p >= c.x[a + 2] + c.pads[a + rank];
        at += p * scale;
        scale *= c.x[a + 2];
      }
      if (!beyond) take(o, inside ? at : -1);
    }
  }
}

std::vector<double> ReferencePool(const PoolCase& c, const std::string& name, bool count_padding,
                                  int64_t p, const std::vector<double>& x) {
  const int64_t in_size = c.x.NumElements(2, c.x.rank());
  const int64_t out_size = c.out.NumElements(2, c.x.rank());
  std::vector<double> y;
  for (int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane) {
    std::vector<double> sum(out_size, 0), count(out_size, 0);
    std::vector<double> best(out_size, -std::numeric_limits<double>::infinity());
    ForTaps(c, [&](int64_t o, int64_t at) {
      if (at < 0) {
        count[o] += count_padding;
        return;
      }
      const double value = x[plane * in_size + at];
      count[o] += 1;
      sum[o] += name == "LpPool" ? std::pow(std::abs(value), p) : value;
      best[o] = value > best[o] || std::isnan(value) ? value : best[o];
    });
    for (int64_t o = 0; o < out_size; ++o) {
      y.push_back(name == "MaxPool"       ? best[o]
                  : name == "AveragePool" ? sum[o] / count[o]
                                          : std::pow(sum[o], 1.0 / p));
    }
  }
  return y;
}

TEST(PoolTest, EqualsReferenceForRandomWindowsTypesAndLayouts) {
  std::mt19937 engine(21);
  const std::string names[] = {"MaxPool", "AveragePool", "LpPool"};
  for (int round = 0; round < 400; ++round) {
    const std::string& name = names[round % 3];
    const bool blocked = round % 2 == 0 && name != "LpPool";
    const PoolCase c = RandomCase(engine, blocked);
    DType dtype = DType::kFloat;
    if (!blocked && round % 5 == 0) dtype = DType::kDouble;
    if (!blocked && name == "MaxPool" && round % 5 == 1) dtype = DType::kInt8;
    if (!blocked && name == "MaxPool" && round % 5 == 2) dtype = DType::kUInt8;
    Tensor x = RandomTensor(dtype, c.x, dtype == DType::kUInt8 ? 0 : -9, 9,
                            static_cast<uint32_t>(engine()));
    if (round % 4 < 2 && kFloatTypes.Contains(dtype)) SprinkleNaN(x, 20, round);
    const bool count_padding = engine() % 2 == 0;
    const int64_t p = 1 + static_cast<int64_t>(engine() % 3);
    OperatorCall call{.name = name, .inputs = {x}};
    call.attributes.Set("kernel_shape", c.kernel);
    call.attributes.Set("strides", c.strides);
    call.attributes.Set("dilations", c.dilations);
    call.attributes.Set("pads", c.pads);
    call.attributes.Set("ceil_mode", int64_t{c.ceil_mode});
    call.attributes.Set("count_include_pad", int64_t{count_padding});
    call.attributes.Set("p", p);
    if (blocked) call.blocked = {.inputs = 1, .outputs = 1};
    ThreadTeam team(1 + round % 2);
    const auto out = RunOperator(call, &team);
    ASSERT_TRUE(out.ok()) << out.status() << c.ToString();
    ASSERT_EQ((*out)[0].shape(), c.out) << c.ToString();
    ExpectNear((*out)[0], ReferencePool(c, name, count_padding, p, AsDoubles(x)), 1e-6,
               name + " " + c.ToString());
  }
}

TEST(PoolTest, MaxPoolTellsWhereItsValuesCameFrom) {
  std::mt19937 engine(22);
  for (int round = 0; round < 60; ++round) {
    const PoolCase c = RandomCase(engine, false);
    const bool column_major = round % 2 == 1;
    const Tensor x = RandomTensor(DType::kFloat, c.x, -9, 9, static_cast<uint32_t>(engine()));
    OperatorCall call{.name = "MaxPool", .inputs = {x}, .num_outputs = 2};
    call.attributes.Set("kernel_shape", c.kernel);
    call.attributes.Set("strides", c.strides);
    call.attributes.Set("dilations", c.dilations);
    call.attributes.Set("pads", c.pads);
    call.attributes.Set("ceil_mode", int64_t{c.ceil_mode});
    call.attributes.Set("storage_order", int64_t{column_major});
    const auto out = RunOperator(call);
    ASSERT_TRUE(out.ok()) << out.status() << c.ToString();
    const int64_t in_size = c.x.NumElements(2, c.x.rank());
    for (int64_t i = 0; i < (*out)[0].size(); ++i) {
      const int64_t index = (*out)[1].data<int64_t>()[i];
      int64_t plane = index / in_size, rest = index % in_size, at = 0;
      if (column_major) {
        int64_t stride = in_size;
        for (int a = c.x.rank() - 1; a >= 2; --a) {
          // The last axis varies slowest.
          stride /= c.x[a];
          at += rest / stride * c.x.NumElements(a + 1, c.x.rank());
          rest %= stride;
        }
      } else {
        at = rest;
      }
      ASSERT_EQ(x.data<float>()[plane * in_size + at], (*out)[0].data<float>()[i]) << c.ToString();
    }
  }
}

TEST(PoolTest, OfSeveralNaNTheFirstIsTheMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OperatorCall call{.name = "MaxPool",
                    .inputs = {Tensor::Of<float>({1, 1, 5}, {9, nan, nan, 7, 8})}};
  call.num_outputs = 2;
  call.attributes.Set("kernel_shape", std::vector<int64_t>{3});
  const auto out = RunOperator(call);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(AsDoubles((*out)[1]), (std::vector<double>{1, 1, 2}));
}

TEST(PoolTest, PadsAutomatically) {
  const Tensor x = Tensor::Of<float>({1, 1, 4}, {1, 2, 3, 4});
  const std::pair<const char*, std::vector<double>> cases[] = {{"SAME_UPPER", {1.5, 2.5, 3.5, 4}},
                                                               {"SAME_LOWER", {1, 1.5, 2.5, 3.5}},
                                                               {"VALID", {1.5, 2.5, 3.5}}};
  for (const auto& [auto_pad, want] : cases) {
    OperatorCall call{.name = "AveragePool", .inputs = {x}};
    call.attributes.Set("kernel_shape", std::vector<int64_t>{2});
    call.attributes.Set("auto_pad", std::string(auto_pad));
    const auto out = RunOperator(call);
    ASSERT_TRUE(out.ok()) << out.status();
    ExpectNear((*out)[0], want, 1e-6, auto_pad);
  }
}

TEST(PoolTest, RefusesWindowsThatDoNotFit) {
  const auto status = [](std::vector<int64_t> kernel, std::vector<int64_t> pads) {
    OperatorCall call{.name = "MaxPool",
                      .inputs = {RandomTensor(DType::kFloat, {1, 1, 4}, 0, 1, 1)}};
    call.attributes.Set("kernel_shape", std::move(kernel));
    call.attributes.Set("pads", std::move(pads));
    return RunOperator(call).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(status({4}, {0, 0}), absl::StatusCode::kOk);
  EXPECT_EQ(status({5}, {0, 0}), kInvalid);
  EXPECT_EQ(status({0}, {0, 0}), kInvalid);
  EXPECT_EQ(status({2, 2}, {0, 0}), kInvalid);
  EXPECT_EQ(status({2}, {2, 0}), kInvalid);
  EXPECT_EQ(status({int64_t{1} << 60}, {0, 0}), kInvalid);
}

// Both taps of a dilated window on the padding about one element.
TEST(PoolTest, TheLargestOfNothingButPaddingIsTheLowestNumber) {
  for (const bool blocked : {false, true}) {
    Tensor x = Tensor::Allocate(DType::kFloat, {1, 16, 1});
    std::fill_n(x.data<float>(), 16, 5.0f);
    OperatorCall call{.name = "MaxPool", .inputs = {x}};
    call.attributes.Set("kernel_shape", std::vector<int64_t>{2});
    call.attributes.Set("dilations", std::vector<int64_t>{2});
    call.attributes.Set("pads", std::vector<int64_t>{1, 1});
    if (blocked) call.blocked = {.inputs = 1, .outputs = 1};
    const auto out = RunOperator(call);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[0].data<float>()[0], std::numeric_limits<float>::lowest()) << blocked;
  }
}

TEST(PoolTest, TakesInfinitiesAndEmptyBatchesOfAnySize) {
  const float inf = std::numeric_limits<float>::infinity();
  OperatorCall call{.name = "MaxPool", .inputs = {Tensor::Of<float>({1, 1, 2}, {-inf, -inf})}};
  call.attributes.Set("kernel_shape", std::vector<int64_t>{2});
  auto out = RunOperator(call);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].data<float>()[0], -inf);
  call.inputs = {Tensor::Allocate(DType::kFloat, {0, 1, int64_t{1} << 34})};
  out = RunOperator(call);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), (Shape{0, 1, (int64_t{1} << 34) - 1}));
}

TEST(GlobalPoolTest, EqualsReferenceInBothLayouts) {
  std::mt19937 engine(23);
  const std::string names[] = {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"};
  const Shape shapes[] = {{2, 16, 7, 7},   {1, 48, 3}, {3, 32, 1, 1},   {1, 5, 17, 9},
                          {2, 3, 2, 3, 5}, {0, 16, 4}, {1, 64, 40, 41}, {2, 24, 5, 6}};
  for (const Shape& shape : shapes) {
    for (const std::string& name : names) {
      for (DType dtype : {DType::kFloat, DType::kDouble}) {
        for (bool blocked : {false, true}) {
          if (blocked &&
              (!FillsBlocks(shape[1]) || name == "GlobalLpPool" || dtype != DType::kFloat)) {
            continue;
          }
          Tensor x = RandomTensor(dtype, shape, -3, 3, static_cast<uint32_t>(engine()));
          SprinkleNaN(x, 100, static_cast<uint32_t>(engine()));
          const std::vector<double> values = AsDoubles(x);
          const int64_t size = shape.NumElements(2, shape.rank());
          std::vector<double> want;
          for (int64_t p = 0; p < shape[0] * shape[1]; ++p) {
            double sum = 0, squares = 0, best = values[p * size];
            for (int64_t i = 0; i < size; ++i) {
              const double v = values[p * size + i];
              sum += v;
              squares += v * v;
              best = v > best || std::isnan(v) ? v : best;
            }
            want.push_back(name == "GlobalAveragePool" ? sum / static_cast<double>(size)
                           : name == "GlobalMaxPool"   ? best
                                                       : std::sqrt(squares));
          }
          OperatorCall call{.name = name, .inputs = {x}};
          if (blocked) call.blocked = {.inputs = 1, .outputs = 1};
          ThreadTeam team(2);
          const auto out = RunOperator(call, &team);
          ASSERT_TRUE(out.ok()) << out.status();
          ExpectNear((*out)[0], want, 1e-6, name + shape.ToString());
        }
      }
    }
  }
}

TEST(MaxUnpoolTest, PutsValuesBackAndRefusesIndicesOutside) {
  const Tensor x = Tensor::Of<float>({1, 1, 2, 2}, {5, 6, 7, 8});
  OperatorCall call{.name = "MaxUnpool",
                    .inputs = {x, Tensor::Of<int64_t>({1, 1, 2, 2}, {5, 7, 13, 15})}};
  call.attributes.Set("kernel_shape", std::vector<int64_t>{2, 2});
  call.attributes.Set("strides", std::vector<int64_t>{2, 2});
  auto out = RunOperator(call);
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectNear((*out)[0], {0, 0, 0, 0, 0, 5, 0, 6, 0, 0, 0, 0, 0, 7, 0, 8}, 0, "natural shape");
  call.inputs.push_back(Tensor::Of<int64_t>({4}, {1, 1, 5, 5}));
  out = RunOperator(call);
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectNear((*out)[0], {0, 0, 0, 0, 0, 0, 5, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 8, 0, 0, 0, 0, 0, 0},
             0, "larger shape");
  call.inputs[1] = Tensor::Of<int64_t>({1, 1, 2, 2}, {5, 7, 13, 16});
  EXPECT_EQ(RunOperator(call).status().code(), absl::StatusCode::kInvalidArgument);
  call.inputs[1] = Tensor::Of<int64_t>({1, 1, 2, 2}, {5, 7, 13, -1});
  EXPECT_EQ(RunOperator(call).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace chairlift::testing
