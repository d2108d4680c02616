// Passes over the logits of one token, which compilers can vectorise.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_ROW_SCAN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_ROW_SCAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chairlift {

inline bool HasNan(std::span<const float> row) {
  int any = 0;
  for (const float value : row) any |= value != value ? 1 : 0;
  return any != 0;
}

// Calls visit(token, value) in order for each value above the threshold: first `threshold`, then
// what the last call returned, which is no lower.
template <typename Visit>
void VisitAbove(std::span<const float> row, float threshold, Visit visit) {
  constexpr size_t kBlock = 64;
  for (size_t first = 0; first < row.size(); first += kBlock) {
    const auto block = row.subspan(first, std::min(kBlock, row.size() - first));
    int any = 0;
    for (const float value : block) any |= value > threshold ? 1 : 0;
    for (size_t i = 0; any != 0 && i < block.size(); ++i) {
      if (block[i] > threshold) threshold = visit(static_cast<int64_t>(first + i), block[i]);
    }
  }
}

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_ROW_SCAN_H_
