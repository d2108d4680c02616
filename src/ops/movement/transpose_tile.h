// Transposes small square tiles in vector registers: the core of every transpose that changes the
// innermost axis. Uses the compiler's 128-bit vectors, which every instruction set has.
#ifndef CHAIRLIFT_OPS_MOVEMENT_TRANSPOSE_TILE_H_
#define CHAIRLIFT_OPS_MOVEMENT_TRANSPOSE_TILE_H_

#include <cstdint>
#include <cstring>
#include <utility>

namespace chairlift {

// dst[i·dst_stride + j·sizeof(T)] = src[j·src_stride + i·sizeof(T)] for i, j below 16 / sizeof(T).
// Strides are in bytes, without alignment requirements. T: unsigned, of 1 to 8 bytes.
template <typename T>
inline void TransposeTile(const char* src, int64_t src_stride, char* dst, int64_t dst_stride) {
  constexpr int kLanes = 16 / sizeof(T);
  typedef T Vector __attribute__((vector_size(16)));
  // Elements first, first + kLanes, first + 1, ... of two vectors combined.
  const auto interleave =
      []<int... kI>(Vector a, Vector b, int upper, std::integer_sequence<int, kI...>) {
    return upper == 0 ? __builtin_shufflevector(a, b, (kI / 2 + kI % 2 * kLanes)...)
                      : __builtin_shufflevector(a, b, (kLanes / 2 + kI / 2 + kI % 2 * kLanes)...);
  };
  constexpr std::make_integer_sequence<int, kLanes> kLaneIndices{};
  Vector rows[kLanes];
  for (int j = 0; j < kLanes; ++j) std::memcpy(&rows[j], src + j * src_stride, sizeof(Vector));
  // Interleaving the halves of the list once per bit of an index transposes it.
  for (int step = 1; step < kLanes; step *= 2) {
    Vector next[kLanes];
    for (int j = 0; j < kLanes / 2; ++j) {
      next[2 * j] = interleave(rows[j], rows[j + kLanes / 2], 0, kLaneIndices);
      next[2 * j + 1] = interleave(rows[j], rows[j + kLanes / 2], 1, kLaneIndices);
    }
    for (int j = 0; j < kLanes; ++j) rows[j] = next[j];
  }
  for (int i = 0; i < kLanes; ++i) std::memcpy(dst + i * dst_stride, &rows[i], sizeof(Vector));
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_TRANSPOSE_TILE_H_
