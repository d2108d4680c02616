// Fast Fourier transforms of any length, in double precision.
#ifndef CHAIRLIFT_OPS_SIGNAL_FFT_H_
#define CHAIRLIFT_OPS_SIGNAL_FFT_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace chairlift {

struct Complex {
  double re = 0;
  double im = 0;
};

// out[k] = Σ_n in[n] × exp(−2πi·k·n / length). O(length × log length) for every length: mixed radix
// if all prime factors are small, otherwise Bluestein's convolution. Immutable and thread-safe.
class Fft {
 public:
  // 1 ≤ length ≤ kLongest.
  explicit Fft(int64_t length);

  int64_t length() const { return length_; }
  // Elements of scratch memory that Run() needs.
  int64_t scratch_size() const { return convolution_ == nullptr ? 0 : 2 * convolution_->length(); }
  // `in`, `out` and `scratch` must not overlap.
  void Run(const Complex* in, Complex* out, Complex* scratch) const;

  static constexpr int64_t kLongest = int64_t{1} << 22;

 private:
  void Mixed(size_t level, int64_t n, int64_t stride, const Complex* in, Complex* out) const;
  void Bluestein(const Complex* in, Complex* out, Complex* scratch) const;

  int64_t length_;
  std::vector<int64_t> radices_;   // their product is the length
  std::vector<Complex> twiddles_;  // exp(−2πi·j / length)
  // Bluestein: the transform of a power of two of at least 2·length − 1.
  std::unique_ptr<Fft> convolution_;
  std::vector<Complex> chirp_;   // exp(−πi·j² / length)
  std::vector<Complex> filter_;  // the transform of the chirp's conjugate
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_SIGNAL_FFT_H_
