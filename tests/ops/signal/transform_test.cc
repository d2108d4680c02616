#include <cmath>
#include <complex>
#include <numbers>

#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using Line = std::vector<std::complex<double>>;

Line NaiveDft(const Line& x, double sign) {
  const size_t n = x.size();
  Line out(n);
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < n; ++i) {
      out[k] += x[i] * std::polar(1.0, sign * 2 * std::numbers::pi *
                                           static_cast<double>(k * i % n) / static_cast<double>(n));
    }
  }
  return out;
}

template <typename T>
Tensor Uniform(std::mt19937& rng, const Shape& shape) {
  Tensor t = Tensor::Allocate(DTypeOf<T>::kValue, shape);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = T(static_cast<float>(uniform(rng)));
  return t;
}

Attributes Kind(bool inverse, bool onesided) {
  Attributes a;
  a.Set("inverse", int64_t{inverse});
  a.Set("onesided", int64_t{onesided});
  return a;
}

// Every line along `axis` transformed by the formula.
template <typename T>
void CheckDft(const Tensor& x, int axis, int64_t length, bool inverse, bool onesided, double bound,
              Team* team = nullptr, bool pass_length = true) {
  const int last = x.shape().rank() - 1;
  OperatorCall call{"DFT", Kind(inverse, onesided), {x, {}, Tensor::Scalar<int64_t>(axis)}};
  if (pass_length) call.inputs[1] = Tensor::Scalar<int64_t>(length);
  const Tensor y = RunOne(call, team);
  Shape expected = x.shape();
  const bool to_real = inverse && onesided;
  expected[axis] = onesided && !inverse ? length / 2 + 1 : length;
  expected[last] = to_real ? 1 : 2;
  ASSERT_EQ(y.shape(), expected) << y.shape().ToString();
  Shape lines = x.shape();
  lines[axis] = 1;
  lines[last] = 1;
  ForEachIndex(lines, [&](const Index& l) {
    const auto at = [&](int64_t i, int64_t part) {
      Index index = l;
      index[axis] = i;
      index[last] = part;
      return static_cast<double>(static_cast<float>(x.data<T>()[Offset(x.shape(), index)]));
    };
    Line in(length);
    const int64_t given = to_real ? length / 2 + 1 : length;
    for (int64_t i = 0; i < std::min(given, x.shape()[axis]); ++i) {
      in[i] = {at(i, 0), x.shape()[last] == 2 ? at(i, 1) : 0};
    }
    if (to_real) {
      in[0] = in[0].real();
      if (length % 2 == 0) in[length / 2] = in[length / 2].real();
      for (int64_t i = 1; 2 * i < length; ++i) in[length - i] = std::conj(in[i]);
    }
    Line out = NaiveDft(in, inverse ? 1 : -1);
    for (int64_t k = 0; k < expected[axis]; ++k) {
      if (inverse) out[k] /= static_cast<double>(length);
      for (int64_t part = 0; part < expected[last]; ++part) {
        Index index = l;
        index[axis] = k;
        index[last] = part;
        const double value =
            static_cast<double>(static_cast<float>(y.data<T>()[Offset(y.shape(), index)]));
        ASSERT_NEAR(value, part == 0 ? out[k].real() : out[k].imag(), bound)
            << "length " << length << " bin " << k;
      }
    }
  });
}

TEST(DftTest, MatchesTheFormulaForEveryLength) {
  std::mt19937 rng(40);
  std::vector<int64_t> lengths = {62, 64, 74, 97, 100, 128, 136, 211, 400, 509, 512};
  for (int64_t n = 1; n <= 40; ++n) lengths.push_back(n);
  for (int64_t n : lengths) {
    for (int64_t parts : {1, 2}) {
      const Tensor x = Uniform<double>(rng, Shape{1, n, parts});
      CheckDft<double>(x, 1, n, false, false, 1e-5);
      CheckDft<double>(x, 1, n, true, false, 1e-5);
      if (parts == 1) CheckDft<double>(x, 1, n, false, true, 1e-5);
      if (parts == 2) CheckDft<double>(x, 1, n, true, true, 1e-5);
    }
  }
}

TEST(DftTest, TransformsAnyAxisWithPaddingAndCutting) {
  std::mt19937 rng(41);
  ReversedTeam team;
  for (int axis : {0, 1, 2}) {
    for (int64_t length : {1, 4, 6, 9}) {
      const Tensor x = Uniform<float>(rng, Shape{5, 6, 7, 2});
      CheckDft<float>(x, axis, length, false, false, 1e-5, &team);
      CheckDft<float>(x, axis, length, true, false, 1e-5, &team);
      CheckDft<float>(x, axis, length, true, true, 1e-5, &team);
    }
  }
  const Tensor wide = Uniform<float>(rng, Shape{40, 16, 60, 1});
  CheckDft<float>(wide, 1, 16, false, true, 1e-4, &team, /*pass_length=*/false);
  const Tensor half = Uniform<Float16>(rng, Shape{3, 8, 1});
  CheckDft<Float16>(half, 1, 8, false, false, 5e-3);
}

TEST(DftTest, DefaultsToTheLastSignalAxis) {
  std::mt19937 rng(42);
  const Tensor x = Uniform<float>(rng, Shape{3, 8, 2});
  ExpectSame(RunOne({"DFT", {}, {x}}), RunOne({"DFT", {}, {x, {}, Tensor::Scalar<int64_t>(1)}}));
  // An inverse one-sided transform makes an even number of samples.
  EXPECT_EQ(RunOne({"DFT", Kind(true, true), {x}}).shape(), (Shape{3, 14, 1}));
}

TEST(DftTest, RefusesImpossibleRequests) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{2, 8, 1});
  const auto error = [](const Tensor& in, int64_t length, int64_t axis, Attributes a = {}) {
    return ErrorOf({"DFT", std::move(a), {in, Tensor::Scalar(length), Tensor::Scalar(axis)}});
  };
  EXPECT_TRUE(error(x, 8, 1).ok());
  EXPECT_FALSE(error(x, 8, 2).ok());
  EXPECT_FALSE(error(x, 8, -1).ok());
  EXPECT_FALSE(error(x, 8, 3).ok());
  EXPECT_FALSE(error(x, 0, 1).ok());
  EXPECT_FALSE(error(x, -1, 1).ok());
  EXPECT_FALSE(error(x, int64_t{1} << 40, 1).ok());
  EXPECT_FALSE(error(x, 8, 1, Kind(true, true)).ok());
  EXPECT_FALSE(error(x.Reshaped({4, 4}), 4, 0).ok());
  EXPECT_FALSE(
      error(Tensor::Allocate(DType::kFloat, Shape{2, 8, 2}), 8, 1, Kind(false, true)).ok());
}

TEST(StftTest, MatchesTheFormula) {
  std::mt19937 rng(43);
  ReversedTeam team;
  for (int round = 0; round < 60; ++round) {
    const int64_t length = round == 0 ? 400 : Pick(rng, 1, 40);
    const int64_t step = Pick(rng, 1, 2 * length);
    const int64_t signal = round == 0 ? 8000 : length + Pick(rng, -1, 100);
    const int64_t batch = Pick(rng, 1, 3);
    const int64_t parts = Pick(rng, 1, 2);
    const bool onesided = parts == 1 && round % 2 == 0;
    const bool windowed = round % 3 != 0;
    const Tensor x = Uniform<float>(rng, Shape{batch, signal, parts});
    const Tensor window = windowed ? Uniform<float>(rng, Shape{length}) : Tensor();
    Attributes a;
    a.Set("onesided", int64_t{onesided});
    OperatorCall call{"STFT", a, {x, Tensor::Scalar(step), window}};
    if (!windowed || round % 2 == 0) call.inputs.push_back(Tensor::Scalar(length));
    const Tensor y = RunOne(call, &team);
    const int64_t frames = signal < length ? 0 : (signal - length) / step + 1;
    const int64_t bins = onesided ? length / 2 + 1 : length;
    ASSERT_EQ(y.shape(), (Shape{batch, frames, bins, 2}));
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t f = 0; f < frames; ++f) {
        Line in(length);
        for (int64_t i = 0; i < length; ++i) {
          const float* at = x.data<float>() + (b * signal + f * step + i) * parts;
          const double w = windowed ? static_cast<double>(window.data<float>()[i]) : 1;
          in[i] = w * std::complex<double>(static_cast<double>(at[0]),
                                           parts == 2 ? static_cast<double>(at[1]) : 0);
        }
        const Line out = NaiveDft(in, -1);
        for (int64_t k = 0; k < bins; ++k) {
          const float* at = y.data<float>() + ((b * frames + f) * bins + k) * 2;
          ASSERT_NEAR(static_cast<double>(at[0]), out[k].real(), 1e-5);
          ASSERT_NEAR(static_cast<double>(at[1]), out[k].imag(), 1e-5);
        }
      }
    }
  }
}

TEST(StftTest, RefusesImpossibleRequests) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{1, 8, 1});
  const auto error = [&](int64_t step, int64_t length, Tensor window = {}) {
    return ErrorOf(
        {"STFT", {}, {x, Tensor::Scalar(step), std::move(window), Tensor::Scalar(length)}});
  };
  EXPECT_TRUE(error(2, 4).ok());
  EXPECT_FALSE(error(0, 4).ok());
  EXPECT_FALSE(error(-1, 4).ok());
  EXPECT_FALSE(error(2, 0).ok());
  EXPECT_FALSE(error(2, int64_t{1} << 40).ok());
  EXPECT_FALSE(error(2, 4, Tensor::Allocate(DType::kFloat, Shape{5})).ok());
  EXPECT_FALSE(error(2, 4, Tensor::Allocate(DType::kDouble, Shape{4})).ok());
  const Tensor pair = Tensor::Allocate(DType::kFloat, Shape{1, 8, 2});
  EXPECT_FALSE(ErrorOf({"STFT", {}, {pair, Tensor::Scalar<int64_t>(2)}}).ok());
}

}  // namespace
}  // namespace chairlift
