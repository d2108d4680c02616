// Packing, and the order of the work. A block of rows is packed. Every panel of B is then
// multiplied with 32 rows of it at a time. So the panel stays in the first-level cache, and the
// rows in the second.
#include "ops/linear/int8_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "device/cpu/isa.h"
#include "ops/linear/int8_finish.h"
#include "ops/linear/int8_rows.h"
#include "ops/linear/int8_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace chairlift {
namespace {

int64_t Int8Steps(int64_t k) { return (k + kInt8TileDepth - 1) / kInt8TileDepth; }

// --- Packed weights

// The parameters of the columns of packed weights. Each panel has Σ b − K · zero, the zeros and the
// scales, 32 of each. A flag after the last panel says whether any zero is not 0.
struct Int8Columns {
  int32_t corrections[kGemmPanel];
  int32_t zeros[kGemmPanel];
  float scales[kGemmPanel];
};

int64_t Int8TilesBytes(int64_t k, int64_t n) {
  return GemmPanels(n) * Int8Steps(k) * 2 * kInt8TileBytes;
}

// A view of them.
struct Int8Weights {
  Int8Weights(const void* packed, int64_t k, int64_t n)
      : tiles(static_cast<const int8_t*>(packed)),
        columns(reinterpret_cast<const Int8Columns*>(tiles + Int8TilesBytes(k, n))),
        has_zeros(*reinterpret_cast<const int32_t*>(columns + GemmPanels(n)) != 0) {}

  const int8_t* tiles;
  const Int8Columns* columns;  // by panel
  bool has_zeros;
};

// value(k, column), zero(column) and scale(column) of packed B. Values have 8 bits with a sign.
template <typename Value, typename Zero, typename Scale>
void PackInt8Columns(int64_t k, int64_t n, void* packed, Value value, Zero zero, Scale scale) {
  auto* tile = static_cast<int8_t*>(packed);
  auto* columns = reinterpret_cast<Int8Columns*>(tile + Int8TilesBytes(k, n));
  int32_t has_zeros = 0;
  std::fill_n(tile, Int8TilesBytes(k, n), int8_t{0});
  for (int64_t panel = 0; panel < GemmPanels(n); ++panel, ++columns) {
    uint32_t sums[kGemmPanel] = {};
    for (int64_t step = 0; step < Int8Steps(k); ++step) {
      for (int64_t half = 0; half < 2; ++half, tile += kInt8TileBytes) {
        const int64_t column = panel * kGemmPanel + half * kInt8TileColumns;
        const int64_t count = std::clamp<int64_t>(n - column, 0, kInt8TileColumns);
        const int64_t depth = std::min(kInt8TileDepth, k - step * kInt8TileDepth);
        for (int64_t i = 0; i < depth; ++i) {
          for (int64_t c = 0; c < count; ++c) {
            const int8_t b = value(step * kInt8TileDepth + i, column + c);
            tile[i / 4 * kInt8TileDepth + 4 * c + i % 4] = b;
            sums[half * kInt8TileColumns + c] += static_cast<uint32_t>(b);
          }
        }
      }
    }
    for (int64_t c = 0; c < kGemmPanel; ++c) {
      const int64_t column = panel * kGemmPanel + c;
      const int32_t z = column < n ? zero(column) : 0;
      if (z != 0) has_zeros = 1;
      columns->zeros[c] = z;
      columns->scales[c] = column < n ? scale(column) : 0;
      columns->corrections[c] =
          static_cast<int32_t>(sums[c] - static_cast<uint32_t>(k) * static_cast<uint32_t>(z));
    }
  }
  std::memcpy(columns, &has_zeros, sizeof(has_zeros));
}

int32_t ByteAt(const void* data, bool is_signed, int64_t i) {
  return is_signed ? static_cast<const int8_t*>(data)[i] : static_cast<const uint8_t*>(data)[i];
}

// --- Packed rows

// Tiles of 16 rows, each `steps` tiles long, and the parameters of the rows. Places past the last
// row are not written, because their sums are not read.
struct Int8Block {
  uint8_t* tiles;
  int64_t steps;
  bool same_rows;  // in zero point and scale
  std::vector<int32_t> zeros, sums;
  std::vector<float> scales;

  uint8_t* Row(int64_t r) const {
    return tiles + r / kInt8TileRows * steps * kInt8TileBytes + r % kInt8TileRows * kInt8TileDepth;
  }
};

// Rows of a block: its tiles take half of a second-level cache at most, except for very long rows.
int64_t RowsOfInt8Block(int64_t m, int64_t k) {
  constexpr int64_t kBytes = 1 << 20, kMost = 256;
  const int64_t depth = std::max<int64_t>(1, Int8Steps(k)) * kInt8TileDepth;
  const int64_t most = std::clamp(kBytes / depth / kGemmPanel * kGemmPanel, kGemmPanel, kMost);
  const int64_t blocks = (m + most - 1) / most;
  return (m + blocks * kGemmPanel - 1) / (blocks * kGemmPanel) * kGemmPanel;
}

// The thread's block for up to `rows` rows.
Int8Block& ThisInt8Block(int64_t rows, int64_t steps) {
  constexpr size_t kLine = 64;
  static thread_local std::vector<uint8_t> memory;
  static thread_local Int8Block block;
  const int64_t row_tiles = (rows + kInt8TileRows - 1) / kInt8TileRows;
  const auto bytes = static_cast<size_t>(row_tiles * steps * kInt8TileBytes) + kLine;
  if (memory.size() < bytes) memory.resize(bytes);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  block.tiles = memory.data() + ((address + kLine - 1) / kLine * kLine - address);
  block.steps = steps;
  const auto count = static_cast<size_t>(rows);
  if (block.zeros.size() < count) {
    block.zeros.resize(count);
    block.sums.resize(count);
    block.scales.resize(count);
  }
  return block;
}

// 64 bytes at a time; `flip` is 0x80 to shift signed bytes by 128.
void PackBytesRow(const uint8_t* from, int64_t stride, int64_t k, uint8_t flip, uint8_t* to) {
  for (int64_t i = 0; i < k; i += kInt8TileDepth, to += kInt8TileBytes) {
    const int64_t count = std::min(kInt8TileDepth, k - i);
    if (stride == 1 && count == kInt8TileDepth) {
      std::memcpy(to, from + i, kInt8TileDepth);
      if (flip != 0) {
        for (int64_t j = 0; j < kInt8TileDepth; ++j) to[j] ^= flip;
      }
      continue;
    }
    for (int64_t j = 0; j < count; ++j) to[j] = from[(i + j) * stride] ^ flip;
    std::fill_n(to + count, kInt8TileDepth - count, uint8_t{0});
  }
}

int32_t SumOfRow(const uint8_t* row, int64_t steps) {
  uint32_t sum = 0;  // padding is 0
  for (int64_t step = 0; step < steps; ++step, row += kInt8TileBytes) {
    for (int64_t j = 0; j < kInt8TileDepth; ++j) sum += row[j];
  }
  return static_cast<int32_t>(sum);
}

// --- Sums

// Converts finished sums to C, a few rows at a time, between the steps of the next block. The
// processor then computes both at once.
class Int8Finishing {
 public:
  void Start(FinishInt8Rows finish_rows, const int32_t* sums, const Int8Finish& finish,
             int64_t rows, int64_t columns) {
    finish_rows_ = finish_rows;
    sums_ = sums;
    finish_ = finish;
    next_ = 0;
    rows_ = rows;
    columns_ = columns;
  }
  void Some(int64_t most) {
    const int64_t end = std::min(next_ + most, rows_);
    if (next_ == end) return;
    if (columns_ == kGemmPanel) {
      finish_rows_(sums_, finish_, next_, end);
    } else {
      for (int64_t r = next_; r < end; ++r) Narrow(r);
    }
    next_ = end;
  }
  void Rest() { Some(rows_); }
  int64_t left() const { return rows_ - next_; }

 private:
  // Finishes one row of the last panel, if C has only some of the panel's columns.
  void Narrow(int64_t r) {
    float row[kGemmPanel], bias[kGemmPanel] = {}, residual[kGemmPanel] = {};
    Int8Finish finish = finish_;
    const size_t bytes = static_cast<size_t>(columns_) * sizeof(float);
    GemmEpilogue& e = finish.epilogue;
    if (e.bias != nullptr) e.bias = static_cast<float*>(std::memcpy(bias, e.bias, bytes));
    if (e.residual != nullptr) {
      std::memcpy(residual, e.residual + r * e.residual_stride, bytes);
      e.residual = residual;
    }
    finish.row_zeros += r;
    finish.row_scales += r;
    finish.row_sums += r;
    finish.c = row;
    finish_rows_(sums_ + r * kGemmPanel, finish, 0, 1);
    std::memcpy(finish_.c + r * finish_.c_stride, row, bytes);
  }

  FinishInt8Rows finish_rows_ = nullptr;
  const int32_t* sums_ = nullptr;
  Int8Finish finish_ = {};
  int64_t next_ = 0, rows_ = 0, columns_ = 0;
};

template <bool kTwo, class Tiles>
void SumInt8Tiles(const uint8_t* a, int64_t steps, const int8_t* b, int32_t* sums,
                  Int8Finishing& finishing) {
  Tiles tiles;
  tiles.Begin();
  const int64_t share = steps == 0 ? 0 : (finishing.left() + steps - 1) / steps;
  for (int64_t s = 0; s < steps; ++s) {
    tiles.template Step<kTwo>(a + s * kInt8TileBytes, steps * kInt8TileBytes,
                              b + 2 * s * kInt8TileBytes);
    finishing.Some(share);
  }
  finishing.Rest();
  tiles.template End<kTwo>(sums);
}

// Each of these structs computes the sums of up to 32 rows and one panel.
template <class Tiles>
struct SumsByTiles {
  static void Sum(const uint8_t* a, int64_t steps, const int8_t* b, int64_t rows, int32_t* sums,
                  Int8Finishing& finishing) {
    if (rows > kInt8TileRows) {
      SumInt8Tiles<true, Tiles>(a, steps, b, sums, finishing);
    } else {
      SumInt8Tiles<false, Tiles>(a, steps, b, sums, finishing);
    }
  }
};

// Calls kSumRows for the rows of each tile of A.
template <auto kSumRows>
struct SumsByRows {
  static void Sum(const uint8_t* a, int64_t steps, const int8_t* b, int64_t rows, int32_t* sums,
                  Int8Finishing& finishing) {
    for (int64_t r = 0; r < rows; r += kInt8TileRows) {
      kSumRows(a + r / kInt8TileRows * steps * kInt8TileBytes, steps, b,
               std::min(kInt8TileRows, rows - r), sums + r * kGemmPanel);
    }
    finishing.Rest();
  }
};

#if defined(__x86_64__)
#define CHAIRLIFT_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))

// For few rows, several sets of sums hide the latency of the instructions.
template <int kRows>
CHAIRLIFT_VNNI void SumVnniRows(const uint8_t* a, int64_t steps, const int8_t* b, int32_t* sums) {
  constexpr int kSets = kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  __m512i sum[kSets][kRows][2];
  for (auto& set : sum) {
    for (auto& row : set) row[0] = row[1] = _mm512_setzero_si512();
  }
  for (int64_t step = 0; step < steps; ++step, a += kInt8TileBytes, b += 2 * kInt8TileBytes) {
    for (int64_t four = 0; four < kInt8TileDepth / 4; four += kSets) {
      for (int set = 0; set < kSets; ++set) {
        const int8_t* from = b + (four + set) * kInt8TileDepth;
        const __m512i left = _mm512_loadu_si512(from);
        const __m512i right = _mm512_loadu_si512(from + kInt8TileBytes);
        for (int r = 0; r < kRows; ++r) {
          int32_t bytes;
          std::memcpy(&bytes, a + r * kInt8TileDepth + 4 * (four + set), sizeof(bytes));
          const __m512i row = _mm512_set1_epi32(bytes);
          sum[set][r][0] = _mm512_dpbusd_epi32(sum[set][r][0], row, left);
          sum[set][r][1] = _mm512_dpbusd_epi32(sum[set][r][1], row, right);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      __m512i all = sum[0][r][half];
      for (int set = 1; set < kSets; ++set) all = _mm512_add_epi32(all, sum[set][r][half]);
      _mm512_storeu_si512(sums + r * kGemmPanel + half * kInt8TileColumns, all);
    }
  }
}

void SumVnni(const uint8_t* a, int64_t steps, const int8_t* b, int64_t rows, int32_t* sums) {
  constexpr int64_t kMost = 8;
  static constexpr void (*kByRows[kMost])(const uint8_t*, int64_t, const int8_t*, int32_t*) = {
      SumVnniRows<1>, SumVnniRows<2>, SumVnniRows<3>, SumVnniRows<4>,
      SumVnniRows<5>, SumVnniRows<6>, SumVnniRows<7>, SumVnniRows<8>};
  for (int64_t r = 0; r < rows; r += kMost) {
    kByRows[std::min(kMost, rows - r) - 1](a + r * kInt8TileDepth, steps, b, sums + r * kGemmPanel);
  }
}
#endif

template <class Sums>
void MultiplyInt8Block(const Int8Block& block, int64_t k, int64_t r0, int64_t m,
                       std::span<const Int8Product> products) {
  alignas(64) int32_t sums[2][kGemmPanel * kGemmPanel];
  Int8Finishing finishing;
  int turn = 0;
  for (const Int8Product& product : products) {
    const Int8Weights weights(product.packed, k, product.n);
    const FinishInt8Rows finish_rows = Int8Finisher(product.epilogue, block.same_rows);
    for (int64_t panel = product.first; panel < product.last; ++panel) {
      const int64_t column = panel * kGemmPanel;
      const Int8Columns& columns = weights.columns[panel];
      for (int64_t r = 0; r < m; r += kGemmPanel, turn = 1 - turn) {
        const int64_t rows = std::min(kGemmPanel, m - r);
        Sums::Sum(block.Row(r), block.steps,
                  weights.tiles + panel * block.steps * 2 * kInt8TileBytes, rows, sums[turn],
                  finishing);
        Int8Finish finish{.corrections = columns.corrections,
                          .zeros = weights.has_zeros ? columns.zeros : nullptr,
                          .scales = columns.scales,
                          .row_zeros = block.zeros.data() + r,
                          .row_scales = block.scales.data() + r,
                          .row_sums = block.sums.data() + r,
                          .c = product.c + (r0 + r) * product.c_stride + column,
                          .c_stride = product.c_stride,
                          .epilogue = product.epilogue};
        GemmEpilogue& e = finish.epilogue;
        if (e.bias != nullptr) e.bias += column;
        if (e.residual != nullptr) e.residual += (r0 + r) * e.residual_stride + column;
        finishing.Start(finish_rows, sums[turn], finish, rows,
                        std::min(kGemmPanel, product.n - column));
      }
    }
  }
  finishing.Rest();
}

void MultiplyInt8(Int8Kernel kernel, const Int8Block& block, int64_t k, int64_t r0, int64_t m,
                  std::span<const Int8Product> products) {
  switch (kernel) {
#if defined(__x86_64__)
    case Int8Kernel::kAmx: {
      const TileScope scope;
      return MultiplyInt8Block<SumsByTiles<AmxInt8Tiles>>(block, k, r0, m, products);
    }
    case Int8Kernel::kVnni:
      return MultiplyInt8Block<SumsByRows<SumVnni>>(block, k, r0, m, products);
#else
    case Int8Kernel::kAmx:
    case Int8Kernel::kVnni:
#endif
    case Int8Kernel::kPortable:
      return MultiplyInt8Block<SumsByTiles<PortableInt8Tiles>>(block, k, r0, m, products);
    case Int8Kernel::kVectors:
      return MultiplyInt8Block<SumsByRows<Int8SumsInPairs>>(block, k, r0, m, products);
  }
}

// pack(row of A, row of the block).
template <typename Pack>
void Int8GemmOf(Int8Kernel kernel, int64_t m, int64_t k, std::span<const Int8Product> products,
                bool same_rows, Pack pack) {
  if (m == 0) return;
  // Up to this many rows vector instructions finish before a tile does.
  constexpr int64_t kFewRows = 1;
  if (kernel == Int8Kernel::kAmx && m <= kFewRows) kernel = Int8Kernel::kVnni;
  bool sums_rows = false;
  for (const Int8Product& p : products) {
    sums_rows = sums_rows || Int8Weights(p.packed, k, p.n).has_zeros;
  }
  const int64_t height = RowsOfInt8Block(m, k);
  Int8Block& block = ThisInt8Block(std::min(height, m), Int8Steps(k));
  block.same_rows = same_rows;
  for (int64_t r0 = 0; r0 < m; r0 += height) {
    const int64_t rows = std::min(height, m - r0);
    for (int64_t r = 0; r < rows; ++r) {
      pack(r0 + r, r, block);
      if (sums_rows) block.sums[r] = SumOfRow(block.Row(r), block.steps);
    }
    MultiplyInt8(kernel, block, k, r0, rows, products);
  }
}

}  // namespace

Int8Kernel MachineInt8Kernel() {
#if defined(__x86_64__)
  if (ActiveCpuIsa() == CpuIsa::kAmx) return Int8Kernel::kAmx;
  if (ActiveCpuIsa() == CpuIsa::kAvx512 && __builtin_cpu_supports("avx512vnni")) {
    return Int8Kernel::kVnni;
  }
#endif
  return Int8Kernel::kVectors;
}

const char* Int8KernelName(Int8Kernel kernel) {
  switch (kernel) {
    case Int8Kernel::kAmx:
      return "AMX";
    case Int8Kernel::kVnni:
      return "AVX-512 VNNI";
    case Int8Kernel::kVectors:
      return "pairs of 16 bits";
    case Int8Kernel::kPortable:
      return "plain code";
  }
  return "";
}

int64_t PackedInt8Bytes(int64_t k, int64_t n) {
  constexpr int64_t kLine = 64;
  return Int8TilesBytes(k, n) + GemmPanels(n) * static_cast<int64_t>(sizeof(Int8Columns)) + kLine;
}

void PackInt8Weights(const Int8Matrix& b, const Int8Parameters& columns, int64_t k, int64_t n,
                     void* packed) {
  const int32_t shift = b.is_signed ? 0 : 128;
  PackInt8Columns(
      k, n, packed,
      [&](int64_t i, int64_t column) {
        const int64_t at = i * b.row_stride + column * b.column_stride;
        return static_cast<int8_t>(ByteAt(b.data, b.is_signed, at) - shift);
      },
      [&](int64_t column) {
        if (columns.zeros == nullptr) return -shift;
        return ByteAt(columns.zeros, b.is_signed, column * columns.zero_stride) - shift;
      },
      [&](int64_t column) {
        return columns.scales == nullptr ? 1.0f : columns.scales[column * columns.scale_stride];
      });
}

void PackRoundedWeights(const float* b, int64_t k_stride, int64_t n_stride, int64_t k, int64_t n,
                        float scale, void* packed) {
  constexpr float kLargest = 127;
  std::vector<float> scales(static_cast<size_t>(n)), inverses(static_cast<size_t>(n));
  for (int64_t c = 0; c < n; ++c) {
    float largest = 0, check = 0;
    for (int64_t i = 0; i < k; ++i) {
      const float x = b[i * k_stride + c * n_stride];
      largest = std::max(largest, std::abs(x));
      check += x * 0.0f;
    }
    const bool tiny = !(largest / kLargest >= std::numeric_limits<float>::min());
    inverses[c] = check != 0 || tiny ? 0 : kLargest / largest;
    scales[c] = check != 0 ? std::numeric_limits<float>::quiet_NaN() : scale * (largest / kLargest);
  }
  PackInt8Columns(
      k, n, packed,
      [&](int64_t i, int64_t column) {
        if (inverses[column] == 0) return int8_t{0};
        const float x = b[i * k_stride + column * n_stride] * inverses[column];
        return static_cast<int8_t>(std::clamp(std::nearbyint(x), -kLargest, kLargest));
      },
      [](int64_t) { return 0; }, [&](int64_t column) { return scales[column]; });
}

void Int8Gemm(Int8Kernel kernel, const Int8Matrix& a, const Int8Parameters& rows, int64_t m,
              int64_t k, std::span<const Int8Product> products) {
  const int32_t shift = a.is_signed ? 128 : 0;
  const bool same_rows = rows.zero_stride == 0 && rows.scale_stride == 0;
  Int8GemmOf(kernel, m, k, products, same_rows, [&](int64_t row, int64_t r, Int8Block& block) {
    PackBytesRow(static_cast<const uint8_t*>(a.data) + row * a.row_stride, a.column_stride, k,
                 static_cast<uint8_t>(shift), block.Row(r));
    block.zeros[r] = shift;
    if (rows.zeros != nullptr) {
      block.zeros[r] += ByteAt(rows.zeros, a.is_signed, row * rows.zero_stride);
    }
    block.scales[r] = rows.scales == nullptr ? 1.0f : rows.scales[row * rows.scale_stride];
  });
}

void RoundedInt8Gemm(Int8Kernel kernel, const float* a, int64_t row_stride, int64_t k_stride,
                     int64_t m, int64_t k, std::span<const Int8Product> products) {
  static thread_local std::vector<float> dense;
  if (k_stride != 1) dense.resize(static_cast<size_t>(k));
  Int8GemmOf(kernel, m, k, products, false, [&](int64_t row, int64_t r, Int8Block& block) {
    const float* from = a + row * row_stride;
    if (k_stride != 1) {
      for (int64_t i = 0; i < k; ++i) dense[i] = from[i * k_stride];
      from = dense.data();
    }
    const FloatRange range = FloatRangeOf(from, k);
    const ByteScale scale = ByteScaleOf(range);
    RoundToBytes(from, k, scale, kInt8TileBytes, block.Row(r));
    block.zeros[r] = scale.zero;
    block.scales[r] = range.finite ? scale.scale : std::numeric_limits<float>::quiet_NaN();
  });
}

}  // namespace chairlift
