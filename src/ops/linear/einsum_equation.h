// The notation of Einsum: "bhid,bhjd->bhij", with ellipses, repeated labels and an implied result.
#ifndef CHAIRLIFT_OPS_LINEAR_EINSUM_EQUATION_H_
#define CHAIRLIFT_OPS_LINEAR_EINSUM_EQUATION_H_

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace chairlift {

// The name of an axis: a letter, or kEllipsisLabel + i for the i-th axis from the right of those in
// "...".
using EinsumLabel = int;
inline constexpr EinsumLabel kEllipsisLabel = 256;

struct EinsumEquation {
  std::vector<std::vector<EinsumLabel>> operands;  // one label per axis
  std::vector<EinsumLabel> result;                 // without repetition

  // `ranks`: the ranks of the operands. An error says what is wrong with the equation.
  static StatusOr<EinsumEquation> Parse(std::string_view text, std::span<const int> ranks);
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_EINSUM_EQUATION_H_
