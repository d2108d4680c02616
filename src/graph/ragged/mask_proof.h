// What the masks of attention hide, proved element by element: what an exporter spreads over
// queries and keys is followed back to the marks that it came from.
//
// The part of the graph that computes a mask is interpreted over values whose elements are
//   bits     a function of one element of the marks, which is 0 or 1: of that of sequence b and
//            token l, the element's indices along two of its axes, or one that is both;
//   place    an integer that follows from the indices and from sizes (place.h);
//   unknown  anything else.
// A function of one bit is known when it was computed for both. Marks other than 0 and 1 are beyond
// the proof.
#ifndef CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_
#define CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_

#include <vector>

#include "base/status.h"
#include "graph/batch_axis/rule.h"
#include "graph/ir.h"

namespace chairlift::ragged {

// What a hidden key's score is lowered by, at least: its weight is 0 then in float32.
inline constexpr float kHidingScore = 1000.0f;

// A mask adds 0 to the score of every key whose token is marked with 1, and `hidden` to that of
// every key marked with 0, whatever batch, head and query.
struct MaskRule {
  int input = -1;  // of the graph: [batch, length] marks; -1: nothing is hidden
  float hidden = 0.0f;
};

// The rule that `mask`, as attention adds it to scores, follows for all sizes and all marks.
// Unimplemented says what stands in the way. `states` hold the sizes that are known.
StatusOr<MaskRule> ProveMask(const Graph& graph, ValueId mask,
                             std::vector<batch_axis::State> states);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_
