// How operators change the dimensions of a value: the rules of Reshape, Flatten, broadcasting and
// Shape.
#ifndef CHAIRLIFT_GRAPH_ANALYSIS_SHAPES_H_
#define CHAIRLIFT_GRAPH_ANALYSIS_SHAPES_H_

#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/analysis/line.h"
#include "graph/ir.h"

namespace chairlift::analysis {

using Dims = std::vector<Line>;

// The shape that operands are broadcast to; nothing if they are not known to fit.
std::optional<Dims> BroadcastDims(const Dims& a, const Dims& b);

// The result of a Reshape to `given` (null: unknown), or of a Flatten, for dimensions `from`.
struct WantedShape {
  Dims dims;                           // with those copied from the input filled in
  std::optional<size_t> deduced = {};  // the dimension of -1
  Line known = Line::Number(1);        // the product of all other dimensions
};
StatusOr<WantedShape> Wanted(const Node& node, const Dims& from, const Dims* given);
// With the deduced dimension. A dimension gets the name that its size has in the input: [length,
// 12] is [n, 3, 4] only if n is the length. Unimplemented if the result is not known to have the
// same number of elements.
StatusOr<Dims> Reshaped(const Node& node, const Dims& from, const Dims* given);
void NameAsInput(const Line& total, WantedShape& wanted);

// Runs of axes before and after a Reshape with equal numbers of entries, in order and as short as
// possible: [batch, length, 12] as [batch·length, 3, 4] has {0, 1} → {0} and {2} → {1, 2}.
struct AxisGroup {
  size_t from, from_end, to, to_end;
};
// Nothing if the two have different numbers of elements, or have none.
std::optional<std::vector<AxisGroup>> GroupAxes(const Dims& from, const Dims& to);
// The axes in [begin, end) that do not have one entry.
std::vector<int> WideAxes(const Dims& dims, size_t begin, size_t end);

// The result of Shape, or Size, for a value of dimensions `dims`.
StatusOr<Dims> SizesOf(const Node& node, const Dims& dims);

}  // namespace chairlift::analysis

#endif  // CHAIRLIFT_GRAPH_ANALYSIS_SHAPES_H_
