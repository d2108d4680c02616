// What the masks of attention hide by place and by mark, by what is followed of their elements
// (graph/analysis): later keys, keys that are far, keys that a mask marks with 0, in any order.
#ifndef CHAIRLIFT_GRAPH_RAGGED_MASK_PATTERNS_H_
#define CHAIRLIFT_GRAPH_RAGGED_MASK_PATTERNS_H_

#include <string>
#include <vector>

#include "graph/analysis/pattern.h"
#include "graph/passes/rewrite.h"
#include "graph/ragged/mask_proof.h"

namespace chairlift::ragged {

class MaskPatterns {
 public:
  // `graph` as Prepare() leaves it; `states` hold the sizes that are known. Both outlive this
  // object.
  MaskPatterns(const Graph& graph, const std::vector<batch_axis::State>& states);

  // Unimplemented says what stands in the way.
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
  void TakeSizes(ValueId id);

  const Graph& graph_;
  const std::vector<batch_axis::State>& states_;
  const Links links_;
  analysis::PatternReader reader_;
  std::vector<bool> visited_;     // by node
  std::vector<std::string> why_;  // by value, where it cannot be followed
};

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_MASK_PATTERNS_H_
