// Widening and requantising; the product itself is in integer_product_simd.cc.
#include "ops/quantization/integer_product.h"

#include <algorithm>
#include <type_traits>

#include "ops/quantization/rounding.h"

namespace chairlift {
namespace {

template <typename F>
void WithBytes(const ByteMatrix& matrix, F f) {
  if (matrix.is_signed) {
    f(static_cast<const int8_t*>(matrix.data));
  } else {
    f(static_cast<const uint8_t*>(matrix.data));
  }
}

}  // namespace

void WidenRows(const ByteMatrix& a, const ZeroPoints& zero, int64_t m, int64_t k, int16_t* wide) {
  const int64_t stride = WideRowStride(k);
  WithBytes(a, [&](const auto* from) {
    for (int64_t r = 0; r < m; ++r, wide += stride) {
      const auto shift = static_cast<int16_t>(zero[r]);
      const auto* row = from + r * a.row_stride;
      if (a.column_stride == 1) {
        for (int64_t i = 0; i < k; ++i) wide[i] = static_cast<int16_t>(row[i] - shift);
      } else {
        for (int64_t i = 0; i < k; ++i) {
          wide[i] = static_cast<int16_t>(row[i * a.column_stride] - shift);
        }
      }
      std::fill(wide + k, wide + stride, int16_t{0});
    }
  });
}

void WidenPanels(const ByteMatrix& b, const ZeroPoints& zero, int64_t n, int64_t k, int64_t first,
                 int64_t last, int16_t* wide) {
  const int64_t pairs = (k + 1) / 2;
  WithBytes(b, [&](const auto* from) {
    for (int64_t panel = first; panel < last; ++panel) {
      int16_t* to = wide + panel * pairs * 2 * kIntegerPanel;
      const int64_t columns = std::min(kIntegerPanel, n - panel * kIntegerPanel);
      if (columns < kIntegerPanel || k % 2 != 0) {
        std::fill_n(to, pairs * 2 * kIntegerPanel, int16_t{0});
      }
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t column = panel * kIntegerPanel + c;
        const auto shift = static_cast<int16_t>(zero[column]);
        const auto* source = from + column * b.column_stride;
        for (int64_t i = 0; i < k; ++i) {
          to[i / 2 * 2 * kIntegerPanel + c * 2 + i % 2] =
              static_cast<int16_t>(source[i * b.row_stride] - shift);
        }
      }
    }
  });
}

void Requantize(const int32_t* sums, int64_t count, float factor, int32_t zero_point,
                bool is_signed, void* y) {
  const auto run = [&](auto* out) {
    using Q = std::remove_pointer_t<decltype(out)>;
    for (int64_t i = 0; i < count; ++i) {
      out[i] = Quantize<Q>(static_cast<float>(sums[i]) * factor, zero_point);
    }
  };
  if (is_signed) {
    run(static_cast<int8_t*>(y));
  } else {
    run(static_cast<uint8_t*>(y));
  }
}

}  // namespace chairlift
