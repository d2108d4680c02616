#include "ops/quantization/integer_product.h"

#include <algorithm>

#include "ops/quantization/rounding.h"

namespace chairlift {
namespace {

// Columns in one go: their sums stay in the first-level cache.
constexpr int64_t kColumns = 256;

template <typename F>
void WithBytes(const ByteMatrix& matrix, F f) {
  if (matrix.is_signed) {
    f(static_cast<const int8_t*>(matrix.data));
  } else {
    f(static_cast<const uint8_t*>(matrix.data));
  }
}

}  // namespace

int64_t IntegerProductScratch(int64_t n, int64_t k) {
  return std::min(n, kColumns) * k * static_cast<int64_t>(sizeof(int16_t));
}

void IntegerProduct(const ByteMatrix& a, const ZeroPoints& a_zero, const ByteMatrix& b,
                    const ZeroPoints& b_zero, int64_t m, int64_t n, int64_t k, int32_t* sums,
                    void* scratch) {
  auto* shifted = static_cast<int16_t*>(scratch);  // b − b_zero, [k, columns]
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t columns = std::min(kColumns, n - first);
    WithBytes(b, [&](const auto* from) {
      for (int64_t c = 0; c < columns; ++c) {
        const int32_t zero = b_zero[first + c];
        for (int64_t i = 0; i < k; ++i) {
          shifted[i * columns + c] =
              static_cast<int16_t>(from[i * b.row_stride + (first + c) * b.column_stride] - zero);
        }
      }
    });
    WithBytes(a, [&](const auto* from) {
      for (int64_t r = 0; r < m; ++r) {
        // Unsigned, so that sums wrap.
        uint32_t row[kColumns] = {};
        const int32_t zero = a_zero[r];
        for (int64_t i = 0; i < k; ++i) {
          const int32_t factor = from[r * a.row_stride + i * a.column_stride] - zero;
          if (factor == 0) continue;
          const int16_t* weights = shifted + i * columns;
          for (int64_t c = 0; c < columns; ++c) {
            row[c] += static_cast<uint32_t>(factor * weights[c]);
          }
        }
        std::transform(row, row + columns, sums + r * n + first,
                       [](uint32_t v) { return static_cast<int32_t>(v); });
      }
    });
  }
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
