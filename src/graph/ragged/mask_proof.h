// Proves element by element what the masks of attention hide: values that an exporter expands to
// queries and keys are traced back to their marks.
//
// The part of the graph that computes a mask is interpreted over values whose elements are
//   bits     a function of one mark, 0 or 1: that of sequence b and token l, which are the
//   element's
//            indices along two of its axes, or one that combines both;
//   place    an integer that depends on the indices and on sizes (place.h);
//   unknown  anything else. A function of one bit is known by computing it for both values. Marks
//   other than 0 and 1 are not covered by the proof.
#ifndef CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_
#define CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_

#include <vector>

#include "base/status.h"
#include "graph/batch_axis/rule.h"
#include "graph/ir.h"

namespace chairlift::ragged {

// The minimum by which the score of a hidden key is lowered: its weight is then 0 in float32.
inline constexpr float kHidingScore = 1000.0f;

// A mask adds 0 to the score of every key whose token is marked with 1, and `hidden` to that of
// every key marked with 0, for every batch, head and query.
struct MaskRule {
  int input = -1;  // of the graph: [batch, length] marks; -1: none is hidden so
  float hidden = 0.0f;
  // Beside that (mask_patterns.h): whether it hides keys behind the query; else what it adds to
  // keys by their distance from the query, −kReach to kReach, where it is not 0 for all.
  bool causal = false;
  std::vector<float> window = {};
  // Inputs that must be 0 and 1 for this to hold, also where none of it follows from them then.
  std::vector<int> marks = {};
};

// The rule that holds for `mask`, which attention adds to scores, for all sizes and all marks.
// Unimplemented says what prevents the proof. `states` hold the known sizes.
StatusOr<MaskRule> ProveMask(const Graph& graph, ValueId mask,
                             std::vector<batch_axis::State> states);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_
