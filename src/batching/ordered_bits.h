// A set of small numbers that finds the first member at or after a number in a few instructions.
#ifndef CHAIRLIFT_BATCHING_ORDERED_BITS_H_
#define CHAIRLIFT_BATCHING_ORDERED_BITS_H_

#include <bit>
#include <cstdint>
#include <vector>

namespace chairlift {

// A tree of 64-bit words: a bit of an upper level is set if the word below it is not zero.
class OrderedBits {
 public:
  static constexpr int32_t kNone = -1;

  // Empties the set and sets its range to [0, size).
  void Reset(int32_t size) {
    levels_.clear();
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(static_cast<size_t>(size), 0);
    } while (size > 1);
  }

  void Insert(int32_t number) {
    auto at = static_cast<uint32_t>(number);
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[at / 64];
      const bool known = word != 0;
      word |= uint64_t{1} << (at % 64);
      if (known) return;
      at /= 64;
    }
  }

  void Erase(int32_t number) {
    auto at = static_cast<uint32_t>(number);
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[at / 64];
      word &= ~(uint64_t{1} << (at % 64));
      if (word != 0) return;
      at /= 64;
    }
  }

  // The smallest member that is at least `number`, or kNone.
  int32_t Next(int32_t number) const {
    auto at = static_cast<uint32_t>(number);
    for (size_t level = 0; level < levels_.size(); ++level) {
      if (at / 64 >= levels_[level].size()) return kNone;
      const uint64_t rest = levels_[level][at / 64] >> (at % 64) << (at % 64);
      if (rest == 0) {
        at = at / 64 + 1;
        continue;
      }
      at = at / 64 * 64 + static_cast<uint32_t>(std::countr_zero(rest));
      while (level > 0) {
        --level;
        at = at * 64 + static_cast<uint32_t>(std::countr_zero(levels_[level][at]));
      }
      return static_cast<int32_t>(at);
    }
    return kNone;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;  // leaves first
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_ORDERED_BITS_H_
