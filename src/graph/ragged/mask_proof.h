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

// A mask adds `hidden` to the score of every key whose token is marked with 0, and 0 where it is
// marked with 1, for every batch, head and query.
struct MaskRule {
  int input = -1;  // of the graph: [batch, length] marks; -1: it hides none by marks
  float hidden = 0.0f;
  // In addition: whether it hides the keys after the query.
  bool causal = false;
  // In addition: what it adds to keys by their distance from the query, −kReach to kReach, the same
  // for all heads or for one head after another. Empty if that is 0.
  std::vector<float> by_distance = {};
  // Whether a key may be hidden by its distance from all queries that see it by their marks.
  bool is_window = false;
  // Inputs that must be 0 and 1 for this to hold, even if they then have no effect.
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
  // Null if no node computes it.
  const Node* Producer(ValueId id) const {
    const int n = links_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(n)];
  }
  // Whether each element is the number of its sequence: arange(batch), or that with axes of one
  // entry.
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
  std::vector<std::string> why_;  // by value, where it cannot be followed
};

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_MASK_PROOF_H_
