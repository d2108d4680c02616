// The notation of Einsum: "bhid,bhjd->bhij", with ellipses, repeated labels and an implied result.
#ifndef CHAIRLIFT_OPS_LINEAR_EINSUM_EQUATION_H_
#define CHAIRLIFT_OPS_LINEAR_EINSUM_EQUATION_H_

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace chairlift {

// An axis's name: a letter, or kEllipsisLabel + i for the i-th axis from the right of those that
// "..." stands for.
using EinsumLabel = int;
inline constexpr EinsumLabel kEllipsisLabel = 256;

struct EinsumEquation {
  std::vector<std::vector<EinsumLabel>> operands;  // one label an axis
  std::vector<EinsumLabel> result;                 // without repetition

  // `ranks`: of the operands. An error names what is wrong with the equation.
  static StatusOr<EinsumEquation> Parse(std::string_view text, std::span<const int> ranks);
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_EINSUM_EQUATION_H_
