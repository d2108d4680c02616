// What the masks of attention hide, found out by trying: the part of the graph that computes a mask
// is cut out and run on small and large batches.
#ifndef CHAIRLIFT_GRAPH_RAGGED_MASK_PROBE_H_
#define CHAIRLIFT_GRAPH_RAGGED_MASK_PROBE_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/status.h"
#include "graph/ir.h"

namespace chairlift::ragged {

// A mask adds 0 to the score of every key whose token counts, and `hidden` to that of every other,
// whatever batch, head and query.
struct MaskRule {
  int input = -1;  // of the graph: [batch, length], 0 or more; -1: nothing is hidden
  // A token counts where its mask is 1; else where it is not 0.
  bool counts_if_one = false;
  float hidden = 0.0f;
};

// Longer sequences are not tried: grids of queries by keys have to fit.
inline constexpr int64_t kLongestProbe = 2048;

// The rule that `mask`, as attention adds it to scores, follows for lengths up to `longest`, at
// most kLongestProbe. Unimplemented says what it does else.
StatusOr<MaskRule> ProbeMask(const Graph& graph, ValueId mask, int64_t longest);

// The inputs of the graph whose elements (not only sizes) `value` depends on, by place.
// Unimplemented where it cannot be told what it depends on.
StatusOr<std::vector<int>> ReadInputs(const Graph& graph, ValueId value);

// `targets` computed from the given inputs (by place; others may not be read). Where `sizes` are
// given, by name, Shape and Size follow from declared dimensions alone, and what they are of need
// not be computed. Memory is bounded: ResourceExhausted.
StatusOr<std::vector<Tensor>> EvaluateValues(const Graph& graph, std::span<const ValueId> targets,
                                             const std::map<int, Tensor>& inputs,
                                             const std::map<std::string, int64_t>& sizes);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_MASK_PROBE_H_
