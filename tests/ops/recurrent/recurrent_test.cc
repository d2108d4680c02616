// LSTM, GRU and RNN against the equations in double, over their options and awkward shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "ops/operator_harness.h"
#include "ops/recurrent/recurrent_reference.h"

namespace chairlift {
namespace recurrent_test {

using testing::Function;
using testing::OperatorCall;
using testing::RecurrentCase;
using testing::RecurrentData;
using testing::RecurrentResult;
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

std::vector<Function> DefaultFunctions(const RecurrentCase& p) {
  std::vector<Function> f;
  for (int d = 0; d < p.directions(); ++d) {
    if (p.op != "RNN") f.emplace_back(Sigmoid);
    f.emplace_back(Tanh);
    if (p.op == "LSTM") f.emplace_back(Tanh);
  }
  return f;
}

RecurrentData MakeData(const RecurrentCase& p, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  // Rounded to float, so that both element types compute from the same numbers.
  const auto fill = [&](int64_t n, double scale) {
    std::vector<double> v(n);
    for (double& e : v) e = static_cast<float>(uniform(random) * scale);
    return v;
  };
  const int64_t d = p.directions();
  const int64_t rows = p.gates() * p.hidden;
  const double scale = 1.5 / std::sqrt(static_cast<double>(p.hidden));
  RecurrentData data;
  data.x = fill(p.time * p.batch * p.features, 2);
  data.w = fill(d * rows * p.features, 1.5 / std::sqrt(1.0 + p.features));
  data.r = fill(d * rows * p.hidden, scale);
  data.bias = fill(d * 2 * rows, 1);
  data.h = fill(d * p.batch * p.hidden, 1);
  data.c = fill(d * p.batch * p.hidden, 1);
  data.peepholes = fill(d * 3 * p.hidden, 1);
  for (int64_t b = 0; b < p.batch; ++b) {
    data.lengths.push_back(p.has_lengths ? std::uniform_int_distribution<int64_t>(0, p.time)(random)
                                         : p.time);
  }
  data.functions = DefaultFunctions(p);
  return data;
}

// [outer, middle, ...] with the first two of three dimensions exchanged.
template <typename T>
Tensor Convert(const Shape& shape, const std::vector<double>& values) {
  Tensor t = Tensor::Allocate(DTypeOf<T>::kValue, shape);
  for (size_t i = 0; i < values.size(); ++i) t.data<T>()[i] = static_cast<T>(values[i]);
  return t;
}
std::vector<double> Exchange(const std::vector<double>& v, int64_t a, int64_t b, int64_t inner) {
  std::vector<double> out(v.size());
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      for (int64_t k = 0; k < inner; ++k) out[(j * a + i) * inner + k] = v[(i * b + j) * inner + k];
    }
  }
  return out;
}

template <typename T>
OperatorCall MakeCall(const RecurrentCase& p, const RecurrentData& data, bool constant_weights) {
  const int64_t d = p.directions();
  const int64_t rows = p.gates() * p.hidden;
  const bool swap = p.layout == 1;
  OperatorCall call{.name = p.op};
  call.attributes.Set("hidden_size", p.hidden);
  call.attributes.Set("direction", p.direction);
  if (p.layout != 0) call.attributes.Set("layout", p.layout);
  if (p.clip > 0) call.attributes.Set("clip", static_cast<float>(p.clip));
  if (p.input_forget) call.attributes.Set("input_forget", int64_t{1});
  if (p.linear_before_reset) call.attributes.Set("linear_before_reset", int64_t{1});
  call.inputs.push_back(swap ? Convert<T>(Shape{p.batch, p.time, p.features},
                                          Exchange(data.x, p.time, p.batch, p.features))
                             : Convert<T>(Shape{p.time, p.batch, p.features}, data.x));
  call.inputs.push_back(Convert<T>(Shape{d, rows, p.features}, data.w));
  call.inputs.push_back(Convert<T>(Shape{d, rows, p.hidden}, data.r));
  call.inputs.push_back(p.has_bias ? Convert<T>(Shape{d, 2 * rows}, data.bias) : Tensor());
  Tensor lengths;
  if (p.has_lengths) {
    lengths = Tensor::Allocate(DType::kInt32, Shape{p.batch});
    for (int64_t b = 0; b < p.batch; ++b) {
      lengths.data<int32_t>()[b] = static_cast<int32_t>(data.lengths[b]);
    }
  }
  call.inputs.push_back(lengths);
  const auto state = [&](const std::vector<double>& v) {
    return swap ? Convert<T>(Shape{p.batch, d, p.hidden}, Exchange(v, d, p.batch, p.hidden))
                : Convert<T>(Shape{d, p.batch, p.hidden}, v);
  };
  call.inputs.push_back(p.has_h ? state(data.h) : Tensor());
  if (p.op == "LSTM") {
    call.inputs.push_back(p.has_c ? state(data.c) : Tensor());
    call.inputs.push_back(p.has_peepholes ? Convert<T>(Shape{d, 3 * p.hidden}, data.peepholes)
                                          : Tensor());
  }
  call.num_outputs = p.op == "LSTM" ? 3 : 2;
  if (constant_weights) call.constants = {1, 2, 3};
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
  return fmt::format(
      "{} {} T={} B={} I={} H={} layout={} bias={} lengths={} h={} c={} P={} clip={} forget={} "
      "linear={}",
      p.op, p.direction, p.time, p.batch, p.features, p.hidden, p.layout, p.has_bias, p.has_lengths,
      p.has_h, p.has_c, p.has_peepholes, p.clip, p.input_forget, p.linear_before_reset);
}

template <typename T>
void Check(const RecurrentCase& p, const RecurrentData& data, const OperatorCall& call,
           double bound, Team* team = nullptr) {
  SCOPED_TRACE(Describe(p) + " " + std::string(DTypeName(DTypeOf<T>::kValue)));
  const RecurrentResult want = Reference(p, data);
  const auto got = RunOperator(call, team);
  ASSERT_TRUE(got.ok()) << got.status();
  const int64_t d = p.directions();
  if (p.layout == 0) {
    EXPECT_EQ((*got)[0].shape(), (Shape{p.time, d, p.batch, p.hidden}));
    EXPECT_EQ((*got)[1].shape(), (Shape{d, p.batch, p.hidden}));
    ExpectNear<T>((*got)[0], want.y, bound);
    ExpectNear<T>((*got)[1], want.y_h, bound);
    if (p.op == "LSTM") ExpectNear<T>((*got)[2], want.y_c, bound);
    return;
  }
  EXPECT_EQ((*got)[0].shape(), (Shape{p.batch, p.time, d, p.hidden}));
  EXPECT_EQ((*got)[1].shape(), (Shape{p.batch, d, p.hidden}));
  // [T, D, B, H] → [B, T, D, H]: T·D and B exchanged.
  ExpectNear<T>((*got)[0], Exchange(want.y, p.time * d, p.batch, p.hidden), bound);
  ExpectNear<T>((*got)[1], Exchange(want.y_h, d, p.batch, p.hidden), bound);
  if (p.op == "LSTM") ExpectNear<T>((*got)[2], Exchange(want.y_c, d, p.batch, p.hidden), bound);
}

template <typename T>
void Check(const RecurrentCase& p, std::mt19937& random, double bound, bool constant_weights,
           Team* team = nullptr) {
  const RecurrentData data = MakeData(p, random);
  Check<T>(p, data, MakeCall<T>(p, data, constant_weights), bound, team);
}

// States stay within a few units, so absolute bounds say what relative ones would.
constexpr double kFloatBound = 1e-5;
constexpr double kDoubleBound = 1e-12;

class RecurrentTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RecurrentTest, EveryCombinationOfOptionsFollowsTheEquations) {
  std::mt19937 random(17);
  const auto pick = [&](int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random);
  };
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    for (unsigned options = 0; options < 512; ++options) {
      const auto bit = [&](int i) { return (options >> i & 1) != 0; };
      RecurrentCase p{.op = GetParam(), .direction = direction};
      p.time = pick(1, 5);
      p.batch = pick(1, 4);
      p.features = pick(1, 9);
      p.hidden = pick(1, 41);
      p.layout = bit(0);
      p.has_bias = bit(1);
      p.has_lengths = bit(2);
      p.has_h = bit(3);
      p.clip = bit(4) ? 0.5 : 0;
      if (p.op == "LSTM") {
        p.has_c = bit(5);
        p.has_peepholes = bit(6);
        p.input_forget = bit(7);
      } else if (p.op == "GRU") {
        p.linear_before_reset = bit(5);
        if (bit(6) || bit(7)) continue;
      } else if (options >> 5 != 0 && !bit(8)) {
        continue;
      }
      Check<float>(p, random, kFloatBound, bit(8));
      if (HasFatalFailure()) return;
      if (bit(8)) Check<double>(p, random, kDoubleBound, false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(RecurrentTest, AwkwardShapes) {
  std::mt19937 random(18);
  for (const auto& [time, batch, features, hidden] :
       std::vector<std::array<int64_t, 4>>{{1, 1, 1, 1},
                                           {3, 0, 4, 5},
                                           {0, 3, 4, 5},
                                           {2, 2, 0, 3},
                                           {1, 2, 3, 31},
                                           {7, 1, 5, 32},
                                           {4, 2, 1, 33},
                                           {3, 300, 2, 7},
                                           {300, 2, 3, 4},
                                           {2, 17, 130, 65},
                                           {4, 5, 257, 256}}) {
    for (const char* direction : {"forward", "reverse", "bidirectional"}) {
      for (bool lengths : {false, true}) {
        RecurrentCase p{.op = GetParam(),
                        .time = time,
                        .batch = batch,
                        .features = features,
                        .hidden = hidden,
                        .direction = direction,
                        .has_lengths = lengths,
                        .has_h = true};
        // Differences of rounding grow along the sequence; the cells here contract.
        Check<float>(p, random, 2e-5, lengths);
        p.layout = 1;
        Check<double>(p, random, 1e-11, !lengths);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(RecurrentTest, NaNOfARowStaysNaNAndInItsRow) {
  std::mt19937 random(23);
  const auto check = [&]<typename T>(T) {
    for (const double clip : {0.0, 0.5}) {
      const RecurrentCase p{
          .op = GetParam(), .time = 3, .batch = 2, .features = 4, .hidden = 21, .clip = clip};
      RecurrentData data = MakeData(p, random);
      data.x[p.features] = std::numeric_limits<double>::quiet_NaN();  // of row 1, at the first step
      const auto got = RunOperator(MakeCall<T>(p, data, true));
      ASSERT_TRUE(got.ok()) << got.status();
      const T* y = (*got)[0].template data<T>();  // [time, 1, batch, hidden]
      for (int64_t i = 0; i < (*got)[0].size(); ++i) {
        EXPECT_EQ(std::isnan(y[i]), i / p.hidden % p.batch == 1) << i << " clip " << clip;
      }
    }
  };
  check(float{});
  check(double{});
}

TEST_P(RecurrentTest, ATeamAnswersAsOneWorkerDoes) {
  std::mt19937 random(19);
  for (int width : {2, 3}) {
    for (const char* direction : {"forward", "bidirectional"}) {
      for (bool linear : {false, true}) {
        RecurrentCase p{.op = GetParam(),
                        .time = 3,
                        .batch = 40,
                        .features = 19,
                        .hidden = 111,
                        .direction = direction,
                        .has_lengths = true,
                        .has_h = true,
                        .linear_before_reset = linear};
        const RecurrentData data = MakeData(p, random);
        const OperatorCall call = MakeCall<float>(p, data, true);
        BackwardTeam team(width);
        Check<float>(p, data, call, kFloatBound, &team);
        EXPECT_GT(team.calls(), 0);
        const auto alone = RunOperator(call);
        const auto together = RunOperator(call, &team);
        ASSERT_TRUE(alone.ok() && together.ok());
        for (size_t i = 0; i < alone->size(); ++i) {
          EXPECT_EQ(std::memcmp((*alone)[i].raw(), (*together)[i].raw(), (*alone)[i].byte_size()),
                    0);
        }
      }
    }
  }
}

struct NamedFunction {
  const char* name;
  Function f;
  std::vector<float> alpha = {};
  std::vector<float> beta = {};
};

TEST_P(RecurrentTest, EveryActivationWithItsParametersAndDefaults) {
  const auto leaky = [](double a) { return [a](double x) { return x < 0 ? a * x : x; }; };
  const auto thresholded = [](double a) { return [a](double x) { return x > a ? x : 0; }; };
  const auto hard = [](double a, double b) {
    return [a, b](double x) { return std::min(1.0, std::max(0.0, a * x + b)); };
  };
  const auto elu = [](double a) { return [a](double x) { return x < 0 ? a * std::expm1(x) : x; }; };
  const std::vector<NamedFunction> functions = {
      {"Sigmoid", Sigmoid},
      {"Tanh", Tanh},
      {"Relu", [](double x) { return std::max(0.0, x); }},
      {"Affine", [](double x) { return 0.75 * x - 0.25; }, {0.75f}, {-0.25f}},
      {"LeakyRelu", leaky(0.5), {0.5f}},
      {"LeakyRelu", leaky(0.01f)},
      {"ThresholdedRelu", thresholded(0.125), {0.125f}},
      {"ThresholdedRelu", thresholded(1)},
      {"ScaledTanh", [](double x) { return 1.5 * std::tanh(0.5 * x); }, {1.5f}, {0.5f}},
      {"HardSigmoid", hard(0.25, 0.375), {0.25f}, {0.375f}},
      {"HardSigmoid", hard(0.2f, 0.5)},
      {"Elu", elu(0.5), {0.5f}},
      {"elu", elu(1)},
      {"Softsign", [](double x) { return x / (1 + std::abs(x)); }},
      {"Softplus", [](double x) { return std::log1p(std::exp(x)); }},
  };
  std::mt19937 random(20);
  for (size_t i = 0; i < functions.size(); ++i) {
    RecurrentCase p{.op = GetParam(),
                    .time = 3,
                    .batch = 2,
                    .features = 3,
                    .hidden = 19,
                    .direction = "bidirectional",
                    .has_h = true,
                    .has_c = true};
    RecurrentData data = MakeData(p, random);
    OperatorCall call = MakeCall<float>(p, data, false);
    std::vector<std::string> names;
    std::vector<float> alphas;
    std::vector<float> betas;
    // Each place has a function of its own; places that share a parameter list take turns. Those
    // that rely on defaults come last in the list of alphas by being alone.
    const size_t places = data.functions.size();
    for (size_t place = 0; place < places; ++place) {
      const bool alone = functions[i].alpha.empty();
      const NamedFunction& f =
          alone ? functions[place == 0 ? i : place % 3] : functions[(i + place) % functions.size()];
      const NamedFunction& used = !alone && f.alpha.empty() ? functions[place % 3] : f;
      names.emplace_back(used.name);
      data.functions[place] = used.f;
      alphas.insert(alphas.end(), used.alpha.begin(), used.alpha.end());
      betas.insert(betas.end(), used.beta.begin(), used.beta.end());
    }
    call.attributes.Set("activations", names);
    if (!alphas.empty()) call.attributes.Set("activation_alpha", alphas);
    if (!betas.empty()) call.attributes.Set("activation_beta", betas);
    Check<float>(p, data, call, 1e-4);
    OperatorCall exact = MakeCall<double>(p, data, false);
    exact.attributes = call.attributes;
    Check<double>(p, data, exact, 1e-9);
    if (HasFatalFailure()) return;
  }
}

TEST_P(RecurrentTest, HalfPrecisionIsStoredAndComputedInFloat) {
  std::mt19937 random(21);
  RecurrentCase p{.op = GetParam(), .time = 2, .batch = 2, .features = 3, .hidden = 5};
  RecurrentData data = MakeData(p, random);
  for (auto* v : {&data.x, &data.w, &data.r, &data.bias}) {
    for (double& e : *v) e = static_cast<float>(Float16(static_cast<float>(e)));
  }
  OperatorCall call = MakeCall<float>(p, data, false);
  for (Tensor& t : call.inputs) {
    if (!t.present()) continue;
    Tensor half = Tensor::Allocate(DType::kFloat16, t.shape());
    for (int64_t i = 0; i < t.size(); ++i) half.data<Float16>()[i] = Float16(t.data<float>()[i]);
    t = half;
  }
  const auto got = RunOperator(call);
  ASSERT_TRUE(got.ok()) << got.status();
  const RecurrentResult want = Reference(p, data);
  for (size_t i = 0; i < want.y.size(); ++i) {
    EXPECT_NEAR(static_cast<float>((*got)[0].data<Float16>()[i]), want.y[i], 1e-3);
  }
}

TEST_P(RecurrentTest, BadModelsAreRefusedByName) {
  std::mt19937 random(22);
  const RecurrentCase p{.op = GetParam(),
                        .time = 2,
                        .batch = 2,
                        .features = 3,
                        .hidden = 5,
                        .has_lengths = true,
                        .has_h = true};
  const RecurrentData data = MakeData(p, random);
  const OperatorCall good = MakeCall<float>(p, data, false);
  const auto message = [](const OperatorCall& call) {
    const auto got = RunOperator(call);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    return Message(got.status());
  };
  const auto with = [&](int input, Tensor t) {
    OperatorCall call = good;
    call.inputs[input] = std::move(t);
    return call;
  };
  const auto attribute = [&](const char* name, AttributeValue value) {
    OperatorCall call = good;
    call.attributes.Set(name, std::move(value));
    return call;
  };
  ASSERT_TRUE(RunOperator(good).ok());
  EXPECT_THAT(message(with(0, Tensor::Allocate(DType::kFloat, Shape{2, 3}))),
              ::testing::HasSubstr("X has shape [2,3]"));
  EXPECT_THAT(message(with(1, Tensor::Allocate(DType::kFloat, Shape{1, 5, 4}))),
              ::testing::HasSubstr("W has shape"));
  EXPECT_THAT(message(with(2, Tensor::Allocate(DType::kFloat, Shape{1, 7, 6}))),
              ::testing::HasSubstr("R has shape"));
  EXPECT_THAT(message(with(3, Tensor::Allocate(DType::kFloat, Shape{1, 7}))),
              ::testing::HasSubstr("B has shape"));
  EXPECT_THAT(message(with(4, Tensor::Of<int32_t>(Shape{2}, {1, 3}))),
              ::testing::HasSubstr("sequence_lens[1] is 3"));
  EXPECT_THAT(message(with(4, Tensor::Of<int32_t>(Shape{2}, {-1, 1}))),
              ::testing::HasSubstr("sequence_lens[0] is -1"));
  EXPECT_THAT(message(with(5, Tensor::Allocate(DType::kDouble, Shape{1, 2, 5}))),
              ::testing::HasSubstr("input 5 is float64"));
  EXPECT_THAT(message(attribute("direction", std::string("sideways"))),
              ::testing::HasSubstr("sideways"));
  EXPECT_THAT(message(attribute("activations", std::vector<std::string>(7, "Tanh"))),
              ::testing::HasSubstr("lists 7"));
  EXPECT_THAT(message(attribute("activations", std::vector<std::string>{"Cosh", "Tanh", "Tanh"})),
              ::testing::HasSubstr(GetParam() == "LSTM" ? "Cosh" : "lists 3"));
  EXPECT_THAT(message(attribute("clip", -1.0f)), ::testing::HasSubstr("clip"));
  EXPECT_THAT(message(attribute("hidden_size", int64_t{-4})), ::testing::HasSubstr("hidden_size"));
  EXPECT_THAT(message(attribute("layout", int64_t{2})), ::testing::HasSubstr("layout"));
}

TEST_P(RecurrentTest, SymbolsReachTheOutputs) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", GetParam());
  const int64_t gates = GetParam() == "LSTM" ? 4 : GetParam() == "GRU" ? 3 : 1;
  const Dim time = Dim::Symbol("time");
  const Dim batch = Dim::Symbol("batch");
  std::vector<ValueInfo> inputs(3);
  inputs[0] = {DType::kFloat, SymbolicShape({time, batch, Dim(6)}), nullptr, {}};
  inputs[1] = {DType::kFloat, SymbolicShape({Dim(2), Dim(gates * 5), Dim(6)}), nullptr, {}};
  inputs[2] = {DType::kFloat, SymbolicShape({Dim(2), Dim(gates * 5), Dim(5)}), nullptr, {}};
  Attributes attributes;
  attributes.Set("direction", std::string("bidirectional"));
  InferContext context(attributes, inputs, 2);
  ASSERT_TRUE(def->infer(context).ok());
  EXPECT_EQ(context.outputs()[0].shape.ToString(), "[time,2,batch,5]");
  EXPECT_EQ(context.outputs()[1].shape.ToString(), "[2,batch,5]");
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentTest, ::testing::Values("LSTM", "GRU", "RNN"),
                         [](const auto& info) { return info.param; });

}  // namespace recurrent_test
}  // namespace chairlift
