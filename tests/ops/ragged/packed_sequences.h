// Lengths of packed sequences for tests of ragged operators.
#ifndef CHAIRLIFT_TESTS_OPS_RAGGED_PACKED_SEQUENCES_H_
#define CHAIRLIFT_TESTS_OPS_RAGGED_PACKED_SEQUENCES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift::testing {

// Offsets of sequences of these lengths.
inline Tensor Offsets(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(offsets.size())},
                             std::span<const int64_t>(offsets));
}

// Empty sequences, single tokens, and tokens behind the last sequence.
struct Packing {
  std::vector<int64_t> lengths;
  int64_t spare = 0;

  int64_t tokens() const {
    int64_t sum = spare;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }
};
inline const std::vector<Packing>& Packings() {
  static const auto* const kPackings = new std::vector<Packing>{
      {{}, 0},       {{}, 3},           {{0}, 0},         {{1}, 0},
      {{0, 0}, 2},   {{5}, 0},          {{1, 1, 1}, 1},   {{3, 0, 7, 2, 0}, 4},
      {{0, 17}, 15}, {{64, 33, 1}, 30}, {{2, 130, 9}, 0},
  };
  return *kPackings;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_RAGGED_PACKED_SEQUENCES_H_
