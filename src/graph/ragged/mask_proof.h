// Proves what the masks of attention hide: later keys, distant keys, keys that a mask marks with 0,
// and combinations of these. The proof follows the masks' elements (graph/analysis).
#ifndef CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_
#define CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_

#include <string>
#include <vector>

#include "graph/analysis/pattern.h"
#include "graph/batch_axis/rule.h"
#include "graph/passes/rewrite.h"
#include "graph/ragged/form.h"

namespace chairlift::ragged {

// The minimum by which the score of a hidden key is lowered: its weight is then 0 in float32.
inline constexpr float kHidingScore = 1000.0f;

// What a mask adds to scores: `hidden` for each key whose token is marked with 0, and 0 for each
// other key. This is the same for every batch, head and query.
struct MaskRule {
  int input = -1;  // graph input, [batch, length] marks; -1: no key is hidden by marks
  float hidden = 0.0f;
  // Whether the mask also hides the keys after the query.
  bool causal = false;
  // The biases that the mask also adds to keys by their distance from the query, −kReach to kReach.
  // One table for all heads, or one table per head. Empty if all are 0.
  std::vector<float> by_distance = {};
  // Whether the biases by distance may hide a key from all queries, although its mark does not.
  bool is_window = false;
  // Graph inputs that must be 0 or 1 for the rule to hold, even if they then have no effect.
  std::vector<int> marks = {};
};

class MaskProof {
 public:
  // `graph` as Prepare() leaves it; `states` hold the sizes that are known. Both outlive this
  // object.
  MaskProof(const Graph& graph, const std::vector<batch_axis::State>& states);

  // The rule by which `mask` adds to the scores of attention, for all sizes and all marks.
  // Unimplemented says what prevents the proof.
  StatusOr<MaskRule> RuleOf(ValueId mask);
  // The node that computes the value; null if no node does.
  const Node* Producer(ValueId id) const {
    const int n = links_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(n)];
  }
  // Whether each element is the index of its sequence in the batch: arange(batch), possibly with
  // further axes of size 1.
  bool NumbersSequences(ValueId id);
  // The most tokens of a sequence for which rules hold; 0: no limit.
  int64_t limit() const { return reader_.limit(); }

 private:
  // Returns the inputs whose marks it follows from.
  std::vector<int> Follow(ValueId id);

  const Graph& graph_;
  const std::vector<batch_axis::State>& states_;
  const Links links_;
  analysis::PatternReader reader_;
  std::vector<bool> visited_;     // by node
  std::vector<std::string> why_;  // by value: why it cannot be followed
};

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_
