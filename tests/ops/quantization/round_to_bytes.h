// What rows become that MatMulNBits rounds to 8 bits (ops/quantization/blockwise.h, ByteRows).
#ifndef CHAIRLIFT_TESTS_OPS_QUANTIZATION_ROUND_TO_BYTES_H_
#define CHAIRLIFT_TESTS_OPS_QUANTIZATION_ROUND_TO_BYTES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/attributes.h"
#include "ops/quantization/blockwise.h"

namespace chairlift::testing {

// `a` holds rows of K floats: each block of a row becomes 255 numbers that are evenly apart, where
// the node allows it and the processor computes so.
inline void RoundToBytes(const Attributes& node, std::vector<double>& a) {
  const BlockwiseShape shape{static_cast<int>(node.Int("bits", 4)), node.Int("block_size", 0),
                             node.Int("K", 0), node.Int("N", 0)};
  if (node.Int("accuracy_level", 0) != 4 || !CanMultiplyBytes()) return;
  for (int64_t row = 0; row < static_cast<int64_t>(a.size()); row += shape.k) {
    for (int64_t k = 0; k < shape.k; k += shape.block) {
      const auto begin = a.begin() + row + k;
      const auto end = begin + std::min(shape.block, shape.k - k);
      double largest = 0;
      std::for_each(begin, end, [&](double x) { largest = std::max(largest, std::abs(x)); });
      if (largest == 0) continue;
      // What lies at a tie is rounded as by the float32 of it.
      const float up = 127.0f / static_cast<float>(largest);
      const float scale = static_cast<float>(largest) / 127.0f;
      std::transform(begin, end, begin, [&](double x) {
        return static_cast<double>(std::nearbyint(static_cast<float>(x) * up)) *
               static_cast<double>(scale);
      });
    }
  }
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_QUANTIZATION_ROUND_TO_BYTES_H_
