// Dynamic quantisation to uint8: the range of numbers, and the scale and zero point that follow.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_DYNAMIC_RANGE_H_
#define CHAIRLIFT_OPS_QUANTIZATION_DYNAMIC_RANGE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/quantization/rounding.h"

namespace chairlift {

struct DynamicScale {
  float scale = 0;
  uint8_t zero = 0;
};

// The smallest and the largest number so far. It includes zero; NaN is ignored.
struct DynamicRange {
  float low = 0, high = 0;

  // Eight running bounds together, so that they are vectorised.
  void Add(const float* x, int64_t n) {
    constexpr int64_t kLanes = 8;
    float lows[kLanes] = {};
    float highs[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        lows[j] = x[i + j] < lows[j] ? x[i + j] : lows[j];
        highs[j] = x[i + j] > highs[j] ? x[i + j] : highs[j];
      }
    }
    Add({*std::min_element(lows, lows + kLanes), *std::max_element(highs, highs + kLanes)});
    for (; i < n; ++i) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
  }
  void Add(const DynamicRange& other) {
    low = std::min(low, other.low);
    high = std::max(high, other.high);
  }

  DynamicScale Scale() const {
    // For all zeros any scale is correct; onnxruntime returns 1.
    float scale = high == low ? 1.0f : (high - low) / 255.0f;
    // Bounds whose difference overflows float, for example in masks.
    if (std::isinf(scale)) {
      scale = static_cast<float>((static_cast<double>(high) - static_cast<double>(low)) / 255.0);
    }
    return {scale, Quantize<uint8_t>(-low / scale, 0)};
  }
};

inline void QuantizeAll(const float* x, int64_t n, DynamicScale by, uint8_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Quantize<uint8_t>(x[i] / by.scale, by.zero);
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_DYNAMIC_RANGE_H_
