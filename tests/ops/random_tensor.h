// Seeded random tensors, and reading any tensor as doubles, for tests that compare with a float64
// reference.
#ifndef CHAIRLIFT_TESTS_OPS_RANDOM_TENSOR_H_
#define CHAIRLIFT_TESTS_OPS_RANDOM_TENSOR_H_

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "chairlift/tensor.h"
#include "tensor/dtype.h"

namespace chairlift::testing {

template <typename F>
auto DispatchAnyType(DType dtype, F&& f) {
  return DispatchTypes<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t,
                       uint16_t, uint32_t, uint64_t, bool>(dtype, std::forward<F>(f));
}

// Uniform in [low, high), rounded to the element type.
inline Tensor RandomTensor(DType dtype, const Shape& shape, double low, double high,
                           uint32_t seed) {
  Tensor t = Tensor::Allocate(dtype, shape);
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  const Status status = DispatchAnyType(dtype, [&]<typename T>() {
    for (int64_t i = 0; i < t.size(); ++i) {
      const double v = uniform(engine);
      if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
        t.data<T>()[i] = T(static_cast<float>(v));
      } else if constexpr (std::is_same_v<T, bool>) {
        t.data<T>()[i] = v > (low + high) / 2;
      } else {
        t.data<T>()[i] = static_cast<T>(v);
      }
    }
    return absl::OkStatus();
  });
  assert(status.ok());
  (void)status;
  return t;
}

// NaN instead of about one element in `of`.
inline void SprinkleNaN(Tensor& t, int of, uint32_t seed) {
  std::mt19937 engine(seed);
  const Status status =
      DispatchTypes<float, double, Float16, BFloat16>(t.dtype(), [&]<typename T>() {
        for (int64_t i = 0; i < t.size(); ++i) {
          if (engine() % static_cast<uint32_t>(of) == 0) {
            t.data<T>()[i] = T(std::numeric_limits<float>::quiet_NaN());
          }
        }
        return absl::OkStatus();
      });
  assert(status.ok());
  (void)status;
}

inline std::vector<double> AsDoubles(const Tensor& t) {
  std::vector<double> out;
  const Status status = DispatchAnyType(t.dtype(), [&]<typename T>() {
    for (const T& v : t.values<T>()) {
      if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
        out.push_back(static_cast<float>(v));
      } else {
        out.push_back(static_cast<double>(v));
      }
    }
    return absl::OkStatus();
  });
  assert(status.ok());
  (void)status;
  return out;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_RANDOM_TENSOR_H_
