// chairlift::RecurrentStep against the equations in double and against LSTM, GRU and RNN of one
// time step; the kernel behind it on scattered rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/operator_harness.h"
#include "ops/recurrent/recurrent.h"
#include "ops/recurrent/recurrent_reference.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace recurrent_step_test {

using testing::Function;
using testing::OperatorCall;
using testing::RecurrentCase;
using testing::RecurrentData;
using testing::Reference;
using testing::RunOperator;

// Parts in an order of their own, last first.
class BackwardTeam final : public Team {
 public:
  explicit BackwardTeam(int width) : width_(width) {}
  int width() const override { return width_; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    ++calls_;
    for (int p = parts; p-- > 0;) body(p, p % width_);
  }
  int calls() const { return calls_; }

 private:
  int width_;
  int calls_ = 0;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Tanh(double x) { return std::tanh(x); }

// A step is a sequence of one time step whose input is the projection: W the identity.
struct StepCase {
  RecurrentCase recurrent;
  RecurrentData data;
};

StepCase MakeCase(const std::string& cell, int64_t rows, int64_t hidden, unsigned options,
                  std::mt19937& random) {
  StepCase out;
  RecurrentCase& p = out.recurrent;
  p.op = cell;
  p.batch = rows;
  p.hidden = hidden;
  p.features = p.gates() * hidden;
  p.has_bias = (options & 1) != 0;
  p.has_h = p.has_c = true;
  p.has_peepholes = cell == "LSTM" && (options & 2) != 0;
  p.clip = (options & 4) != 0 ? 0.5 : 0;
  p.input_forget = cell == "LSTM" && (options & 8) != 0;
  p.linear_before_reset = cell == "GRU" && (options & 8) != 0;

  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto fill = [&](int64_t n, double scale) {
    std::vector<double> v(n);
    for (double& e : v) e = static_cast<float>(uniform(random) * scale);
    return v;
  };
  RecurrentData& data = out.data;
  const int64_t columns = p.gates() * hidden;
  data.x = fill(rows * columns, 2);
  data.w.assign(columns * columns, 0.0);
  for (int64_t i = 0; i < columns; ++i) data.w[i * columns + i] = 1;
  data.r = fill(columns * hidden, 1.5 / std::sqrt(1.0 + static_cast<double>(hidden)));
  data.bias.assign(columns, 0.0);  // W's, which xw includes
  const std::vector<double> rb = fill(columns, 1);
  data.bias.insert(data.bias.end(), rb.begin(), rb.end());
  data.h = fill(rows * hidden, 1);
  data.c = fill(rows * hidden, 1);
  data.peepholes = fill(3 * hidden, 1);
  data.lengths.assign(rows, 1);
  if (cell != "RNN") data.functions.emplace_back(Sigmoid);
  data.functions.emplace_back(Tanh);
  if (cell == "LSTM") data.functions.emplace_back(Tanh);
  return out;
}

template <typename T>
Tensor Convert(const Shape& shape, const double* values) {
  Tensor t = Tensor::Allocate(DTypeOf<T>::kValue, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = static_cast<T>(values[i]);
  return t;
}

void SetOptions(const RecurrentCase& p, Attributes& attributes) {
  if (p.clip > 0) attributes.Set("clip", static_cast<float>(p.clip));
  if (p.input_forget) attributes.Set("input_forget", int64_t{1});
  if (p.linear_before_reset) attributes.Set("linear_before_reset", int64_t{1});
}

template <typename T>
OperatorCall MakeCall(const StepCase& step, bool constant_weights) {
  const RecurrentCase& p = step.recurrent;
  const RecurrentData& data = step.data;
  const int64_t columns = p.gates() * p.hidden;
  const bool lstm = p.op == "LSTM";
  OperatorCall call{.name = "RecurrentStep", .domain = "chairlift"};
  call.num_outputs = lstm ? 2 : 1;
  call.attributes.Set("cell", p.op);
  SetOptions(p, call.attributes);
  call.inputs = {Convert<T>(Shape{p.batch, columns}, data.x.data()),
                 Convert<T>(Shape{p.batch, p.hidden}, data.h.data()),
                 lstm ? Convert<T>(Shape{p.batch, p.hidden}, data.c.data()) : Tensor(),
                 Convert<T>(Shape{columns, p.hidden}, data.r.data()),
                 p.has_bias ? Convert<T>(Shape{columns}, data.bias.data() + columns) : Tensor()};
  if (p.has_peepholes) {
    call.inputs.push_back(Convert<T>(Shape{3 * p.hidden}, data.peepholes.data()));
  }
  if (constant_weights) call.constants = {3};
  return call;
}

template <typename T>
void ExpectNear(const Tensor& got, const std::vector<double>& want, double bound) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got.data<T>()[i], want[i], bound) << "element " << i;
  }
}

std::string Describe(const RecurrentCase& p) {
  return fmt::format("{} N={} H={} Rb={} P={} clip={} forget={} linear={}", p.op, p.batch, p.hidden,
                     p.has_bias, p.has_peepholes, p.clip, p.input_forget, p.linear_before_reset);
}

template <typename T>
void Check(const StepCase& step, bool constant_weights, double bound, Team* team = nullptr) {
  SCOPED_TRACE(Describe(step.recurrent));
  const auto want = Reference(step.recurrent, step.data);
  const auto got = RunOperator(MakeCall<T>(step, constant_weights), team);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ((*got)[0].shape(), (Shape{step.recurrent.batch, step.recurrent.hidden}));
  ExpectNear<T>((*got)[0], want.y_h, bound);
  if (step.recurrent.op == "LSTM") ExpectNear<T>((*got)[1], want.y_c, bound);
}

constexpr double kFloatBound = 1e-5;
constexpr double kDoubleBound = 1e-12;

class RecurrentStepTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RecurrentStepTest, EveryCombinationOfOptionsFollowsTheEquations) {
  std::mt19937 random(31);
  BackwardTeam team(3);
  for (unsigned options = 0; options < 16; ++options) {
    for (int repeat = 0; repeat < 6; ++repeat) {
      const auto pick = [&](int64_t lo, int64_t hi) {
        return std::uniform_int_distribution<int64_t>(lo, hi)(random);
      };
      const StepCase step = MakeCase(GetParam(), pick(1, 40), pick(1, 70), options, random);
      Check<float>(step, repeat % 2 == 0, kFloatBound, repeat >= 3 ? &team : nullptr);
      Check<double>(step, repeat % 2 == 0, kDoubleBound, repeat >= 3 ? &team : nullptr);
    }
  }
}

TEST_P(RecurrentStepTest, AwkwardShapes) {
  std::mt19937 random(32);
  for (int64_t rows : {0, 1, 2, 3, 8, 9, 97, 98, 99, 197}) {
    for (int64_t hidden : {1, 31, 32, 33, 128}) {
      const StepCase step = MakeCase(GetParam(), rows, hidden, 1 | (rows % 2) * 8, random);
      Check<float>(step, true, kFloatBound);
      if (rows < 10) Check<double>(step, true, kDoubleBound);
    }
  }
}

TEST_P(RecurrentStepTest, ATeamSharesTheUnits) {
  std::mt19937 random(33);
  for (unsigned options : {0u, 8u}) {
    BackwardTeam team(4);
    const StepCase step = MakeCase(GetParam(), 7, 300, options, random);
    Check<float>(step, true, kFloatBound, &team);
    EXPECT_EQ(team.calls(), GetParam() == "GRU" && options == 0 ? 2 : 1);
    testing::ThreadTeam threads(3);
    Check<float>(step, true, kFloatBound, &threads);
  }
  BackwardTeam team(4);
  Check<float>(MakeCase(GetParam(), 1, 20, 0, random), true, kFloatBound, &team);
  EXPECT_EQ(team.calls(), 0) << "too small to split";
}

TEST_P(RecurrentStepTest, IsTheOperatorOfOneTimeStep) {
  std::mt19937 random(34);
  for (unsigned options = 0; options < 16; ++options) {
    StepCase step = MakeCase(GetParam(), 5, 37, options, random);
    const RecurrentCase& p = step.recurrent;
    const int64_t columns = p.gates() * p.hidden;
    OperatorCall whole{.name = p.op, .num_outputs = p.op == "LSTM" ? 3 : 2};
    whole.attributes.Set("hidden_size", p.hidden);
    SetOptions(p, whole.attributes);
    whole.inputs = {
        Convert<float>(Shape{1, p.batch, columns}, step.data.x.data()),
        Convert<float>(Shape{1, columns, columns}, step.data.w.data()),
        Convert<float>(Shape{1, columns, p.hidden}, step.data.r.data()),
        p.has_bias ? Convert<float>(Shape{1, 2 * columns}, step.data.bias.data()) : Tensor(),
        Tensor(),
        Convert<float>(Shape{1, p.batch, p.hidden}, step.data.h.data())};
    OperatorCall one = MakeCall<float>(step, true);
    const bool two_functions = p.op != "RNN";
    if (options % 3 == 1) {
      std::vector<std::string> names = {"HardSigmoid", "ScaledTanh", "Elu"};
      if (p.op != "LSTM") names.pop_back();
      if (p.op == "RNN") names.pop_back();
      const std::vector<float> alphas(names.size(), 0.3f);
      const std::vector<float> betas(two_functions ? 2 : 1, 0.6f);
      for (Attributes* attributes : {&whole.attributes, &one.attributes}) {
        attributes->Set("activations", names);
        attributes->Set("activation_alpha", alphas);
        attributes->Set("activation_beta", betas);
      }
    }
    if (p.op == "LSTM") {
      whole.inputs.push_back(Convert<float>(Shape{1, p.batch, p.hidden}, step.data.c.data()));
      whole.inputs.push_back(
          p.has_peepholes ? Convert<float>(Shape{1, 3 * p.hidden}, step.data.peepholes.data())
                          : Tensor());
    }
    SCOPED_TRACE(Describe(p));
    const auto want = RunOperator(whole);
    const auto got = RunOperator(one);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t output = 0; output < got->size(); ++output) {
      for (int64_t i = 0; i < (*got)[output].size(); ++i) {
        ASSERT_NEAR((*got)[output].data<float>()[i], (*want)[output + 1].data<float>()[i], 2e-6);
      }
    }
  }
}

TEST_P(RecurrentStepTest, RowsMayLieAnywhere) {
  std::mt19937 random(35);
  for (int64_t rows : {0, 1, 2, 5, 8, 64, 130}) {
    for (int64_t hidden : {1, 40, 96}) {
      const StepCase step = MakeCase(GetParam(), rows, hidden, 1 | (hidden == 40 ? 10 : 0), random);
      const RecurrentCase& p = step.recurrent;
      SCOPED_TRACE(Describe(p));
      const int64_t columns = p.gates() * hidden;
      OperatorCall call = MakeCall<float>(step, true);
      const auto want = RunOperator(call);
      ASSERT_TRUE(want.ok()) << want.status();

      const CellKind cell = p.op == "LSTM"  ? CellKind::kLstm
                            : p.op == "GRU" ? CellKind::kGru
                                            : CellKind::kRnn;
      const auto spec = RecurrentSpec::Parse(cell, call.attributes);
      ASSERT_TRUE(spec.ok()) << spec.status();
      WeightCache cache;
      const auto bound =
          RecurrentStep::Create(spec->Step(0, hidden), call.inputs[3], call.inputs[4],
                                p.has_peepholes ? call.inputs[5] : Tensor(), cache);
      ASSERT_TRUE(bound.ok()) << bound.status();
      // Rows in a shuffled order, with gaps, in one arena that nothing else may be written to.
      const int64_t pitch = columns + 5 * hidden + 8;
      std::vector<float> arena(rows * pitch, -7.0f);
      std::vector<int64_t> places(rows);
      for (int64_t r = 0; r < rows; ++r) places[r] = r;
      std::shuffle(places.begin(), places.end(), random);
      std::vector<const float*> xw, h, c;
      std::vector<float*> h_next, c_next;
      for (int64_t r = 0; r < rows; ++r) {
        float* at = arena.data() + places[r] * pitch;
        const auto put = [&](const Tensor& t, int64_t n) {
          std::copy_n(t.data<float>() + r * n, n, at);
          const float* from = at;
          at += n + 1;
          return from;
        };
        xw.push_back(put(call.inputs[0], columns));
        h.push_back(put(call.inputs[1], hidden));
        c.push_back(p.op == "LSTM" ? put(call.inputs[2], hidden) : nullptr);
        h_next.push_back(at);
        c_next.push_back(at + hidden + 1);
      }
      testing::ThreadTeam team(2);
      const Tensor scratch = Tensor::Allocate(
          DType::kUInt8, Shape{static_cast<int64_t>(bound->ScratchBytes(rows, team.width()))});
      bound->Step(rows, xw.data(), h.data(), c.data(), h_next.data(), c_next.data(), rows % 2 != 0,
                  team, const_cast<void*>(scratch.raw()));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t u = 0; u < hidden; ++u) {
          ASSERT_NEAR(h_next[r][u], (*want)[0].data<float>()[r * hidden + u], 2e-6) << r;
          if (p.op != "LSTM") continue;
          ASSERT_NEAR(c_next[r][u], (*want)[1].data<float>()[r * hidden + u], 2e-6) << r;
        }
        EXPECT_EQ(h_next[r][-1], -7.0f);
        EXPECT_EQ(h_next[r][hidden], -7.0f);
        if (p.op == "LSTM") {
          EXPECT_EQ(c_next[r][hidden], -7.0f);
        }
        for (int64_t i = 0; i < columns; ++i) {
          ASSERT_EQ(xw[r][i], call.inputs[0].data<float>()[r * columns + i]);
        }
      }
    }
  }
}

// A step of one unit whose R is zero.
float StepOfOneUnit(const std::string& cell, const std::vector<float>& xw, float h,
                    bool reset_after) {
  const auto gates = static_cast<int64_t>(xw.size());
  OperatorCall call{.name = "RecurrentStep", .domain = "chairlift"};
  call.attributes.Set("cell", cell);
  if (reset_after) call.attributes.Set("linear_before_reset", int64_t{1});
  call.inputs = {Tensor::Of<float>(Shape{1, gates}, xw), Tensor::Of<float>(Shape{1, 1}, {h}),
                 Tensor(), Tensor::Of<float>(Shape{gates, 1}, std::vector<float>(xw.size(), 0.0f))};
  const auto got = RunOperator(call);
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? *(*got)[0].data<float>() : 0;
}

TEST(RecurrentStepLimitsTest, NanStaysNanAndInfinityIsALimit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const bool reset_after : {false, true}) {
    SCOPED_TRACE(reset_after);
    for (size_t at = 0; at < 4; ++at) {
      std::vector<float> xw = {0.5f, 0.5f, 0.5f};
      if (at < 3) xw[at] = nan;
      EXPECT_TRUE(std::isnan(StepOfOneUnit("GRU", xw, at == 3 ? nan : 1, reset_after))) << at;
    }
    for (const float large : {100.0f, 1e30f, inf}) {
      EXPECT_FLOAT_EQ(StepOfOneUnit("GRU", {large, 0, 0}, 3, reset_after), 3);  // z = 1
      EXPECT_NEAR(StepOfOneUnit("GRU", {-large, 0, large}, 3, reset_after), 1, 1e-6);
      EXPECT_NEAR(StepOfOneUnit("GRU", {-large, large, -large}, 3, reset_after), -1, 1e-6);
      EXPECT_FLOAT_EQ(StepOfOneUnit("GRU", {0, -large, 0}, 3, reset_after), 1.5);
    }
    EXPECT_FLOAT_EQ(StepOfOneUnit("GRU", {0, 0, 0}, 1e30f, reset_after), 0.5e30f);
  }
  EXPECT_TRUE(std::isnan(StepOfOneUnit("RNN", {nan}, 0, false)));
  EXPECT_NEAR(StepOfOneUnit("RNN", {inf}, 0, false), 1, 1e-6);
  EXPECT_NEAR(StepOfOneUnit("RNN", {-inf}, 0, false), -1, 1e-6);
  EXPECT_FLOAT_EQ(StepOfOneUnit("RNN", {1e-6f}, 0, false), 1e-6f);
}

TEST_P(RecurrentStepTest, WhatDoesNotFitIsRefused) {
  std::mt19937 random(36);
  const StepCase step = MakeCase(GetParam(), 3, 8, 3, random);
  const OperatorCall good = MakeCall<float>(step, true);
  ASSERT_TRUE(RunOperator(good).ok());
  const auto refused = [](const OperatorCall& call) {
    return RunOperator(call).status().code() == absl::StatusCode::kInvalidArgument;
  };
  for (size_t i = 0; i < good.inputs.size(); ++i) {
    if (!good.inputs[i].present()) continue;
    OperatorCall call = good;
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < good.inputs[i].shape().rank(); ++d) {
      dims.push_back(good.inputs[i].shape()[d]);
    }
    for (size_t d = 0; d < dims.size(); ++d) {
      std::vector<int64_t> wrong = dims;
      ++wrong[d];
      call.inputs[i] = Tensor::Allocate(DType::kFloat, Shape(wrong));
      EXPECT_TRUE(refused(call)) << "input " << i << " axis " << d;
    }
    dims.push_back(1);
    call.inputs[i] = Tensor::Allocate(DType::kFloat, Shape(dims));
    EXPECT_TRUE(refused(call)) << "rank of input " << i;
    call.inputs[i] = Tensor::Allocate(DType::kDouble, good.inputs[i].shape());
    EXPECT_TRUE(refused(call)) << "type of input " << i;
    if (i < 4) {
      const Tensor absent;
      call.inputs[i] = absent;
      call.constants = {};
      EXPECT_TRUE(refused(call)) << "absent input " << i;
    }
  }
  for (const char* cell : {"", "lstm", "LSTM2"}) {
    OperatorCall call = good;
    call.attributes.Set("cell", std::string(cell));
    EXPECT_TRUE(refused(call)) << cell;
  }
  OperatorCall call = good;
  call.attributes.Set("direction", std::string("bidirectional"));
  EXPECT_TRUE(refused(call));
  call = good;
  call.attributes.Set("clip", -1.0f);
  EXPECT_TRUE(refused(call));
  if (GetParam() != "LSTM") {
    call = good;
    call.num_outputs = 2;
    EXPECT_TRUE(refused(call)) << "c' of a cell that has none";
    call = good;
    call.inputs[2] = call.inputs[1];
    EXPECT_TRUE(refused(call)) << "c of a cell that has none";
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentStepTest, ::testing::Values("LSTM", "GRU", "RNN"),
                         [](const auto& info) { return info.param; });

}  // namespace recurrent_step_test
}  // namespace chairlift
