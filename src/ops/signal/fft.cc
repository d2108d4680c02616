#include "ops/signal/fft.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace chairlift {
namespace {

constexpr int64_t kLargestRadix = 31;

Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
Complex Conjugate(Complex a) { return {a.re, -a.im}; }
Complex Unit(double angle) { return {std::cos(angle), std::sin(angle)}; }

}  // namespace

Fft::Fft(int64_t length) : length_(length) {
  int64_t rest = length;
  for (; rest % 4 == 0; rest /= 4) radices_.push_back(4);
  for (int64_t p = 2; p <= kLargestRadix; ++p) {
    for (; rest % p == 0; rest /= p) radices_.push_back(p);
  }
  const double step = -2 * std::numbers::pi / static_cast<double>(length);
  if (rest == 1) {
    for (int64_t j = 0; j < length; ++j) twiddles_.push_back(Unit(step * static_cast<double>(j)));
    return;
  }
  int64_t padded = 1;
  while (padded < 2 * length - 1) padded *= 2;
  convolution_ = std::make_unique<Fft>(padded);
  for (int64_t j = 0; j < length; ++j) {
    // j² modulo 2·length, so that the angle stays exact.
    chirp_.push_back(Unit(step / 2 * static_cast<double>(j * j % (2 * length))));
  }
  std::vector<Complex> conjugate(static_cast<size_t>(padded));
  for (int64_t j = 0; j < length; ++j) {
    const auto at = static_cast<size_t>(j);
    conjugate[at] = Conjugate(chirp_[at]);
    if (j > 0) conjugate[static_cast<size_t>(padded - j)] = conjugate[at];
  }
  filter_.resize(conjugate.size());
  convolution_->Run(conjugate.data(), filter_.data(), nullptr);
}

void Fft::Run(const Complex* in, Complex* out, Complex* scratch) const {
  if (convolution_ != nullptr) {
    Bluestein(in, out, scratch);
  } else {
    Mixed(0, length_, 1, in, out);
  }
}

// Decimation in time: n = p × m; p transforms of every p-th element, then m butterflies of p.
void Fft::Mixed(size_t level, int64_t n, int64_t stride, const Complex* in, Complex* out) const {
  if (n == 1) {
    *out = *in;
    return;
  }
  const int64_t p = radices_[level];
  const int64_t m = n / p;
  for (int64_t q = 0; q < p; ++q) Mixed(level + 1, m, stride * p, in + q * stride, out + q * m);
  const Complex* w = twiddles_.data();
  if (p == 4) {
    for (int64_t k = 0; k < m; ++k) {
      const Complex a = out[k];
      const Complex b = out[k + m] * w[k * stride];
      const Complex c = out[k + 2 * m] * w[2 * k * stride];
      const Complex d = out[k + 3 * m] * w[3 * k * stride];
      const Complex even = a + c;
      const Complex odd = a - c;
      const Complex sum = b + d;
      const Complex turned = {b.im - d.im, d.re - b.re};  // −i(b − d)
      out[k] = even + sum;
      out[k + m] = odd + turned;
      out[k + 2 * m] = even - sum;
      out[k + 3 * m] = odd - turned;
    }
    return;
  }
  if (p == 2) {
    for (int64_t k = 0; k < m; ++k) {
      const Complex a = out[k];
      const Complex b = out[k + m] * w[k * stride];
      out[k] = a + b;
      out[k + m] = a - b;
    }
    return;
  }
  const int64_t root = length_ / p;  // w[root] is the p-th root of one
  Complex term[kLargestRadix];
  for (int64_t k = 0; k < m; ++k) {
    for (int64_t q = 0; q < p; ++q) term[q] = out[k + q * m] * w[q * k * stride];
    for (int64_t r = 0; r < p; ++r) {
      Complex sum = term[0];
      for (int64_t q = 1; q < p; ++q) sum = sum + term[q] * w[q * r % p * root];
      out[k + r * m] = sum;
    }
  }
}

// k·n = (k² + n² − (k − n)²) / 2 makes the transform a convolution with a chirp.
void Fft::Bluestein(const Complex* in, Complex* out, Complex* scratch) const {
  const int64_t padded = convolution_->length();
  Complex* a = scratch;
  Complex* b = scratch + padded;
  for (int64_t j = 0; j < length_; ++j) a[j] = in[j] * chirp_[static_cast<size_t>(j)];
  std::fill(a + length_, a + padded, Complex{});
  convolution_->Run(a, b, nullptr);
  // The inverse transform is the conjugate's transform, conjugated.
  for (int64_t j = 0; j < padded; ++j) {
    a[j] = Conjugate(b[j] * filter_[static_cast<size_t>(j)]);
  }
  convolution_->Run(a, b, nullptr);
  const double scale = 1 / static_cast<double>(padded);
  for (int64_t k = 0; k < length_; ++k) {
    const Complex c = Conjugate(b[k]) * chirp_[static_cast<size_t>(k)];
    out[k] = {c.re * scale, c.im * scale};
  }
}

}  // namespace chairlift
