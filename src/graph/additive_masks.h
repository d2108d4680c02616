// Finds values that are only added to the scores of a softmax, or that replace them.
#ifndef CHAIRLIFT_GRAPH_ADDITIVE_MASKS_H_
#define CHAIRLIFT_GRAPH_ADDITIVE_MASKS_H_

#include <map>
#include <memory>

#include "graph/ir.h"
#include "graph/passes/rewrite.h"

namespace chairlift {

// The largest number of a mask means "without bound", so a larger one gives the same softmax. Keeps
// a reference to the graph. Not thread-safe.
class AdditiveMasks {
 public:
  explicit AdditiveMasks(const Graph& graph) : graph_(graph), links_(graph) {}
  // Whether the value can only end in a softmax or in the mask of an attention. On the way there
  // may be sums, selections, moves and products with whole numbers. False if that is unknown, for
  // example for graph outputs.
  bool IsMask(ValueId id) { return IsMask(id, 0); }

 private:
  // `depth` is the recursion depth.
  bool IsMask(ValueId id, int depth);
  bool MasksThrough(const Node& node, size_t input, int depth);
  bool MasksInBodies(const Node& node, size_t input, int depth);
  bool IsWhole(ValueId id, int depth);
  bool ComputesWhole(ValueId id, int depth);
  bool Scales(ValueId id) const;

  const Graph& graph_;
  const Links links_;
  std::map<ValueId, bool> masks_, whole_;
  std::map<const Graph*, std::unique_ptr<AdditiveMasks>> bodies_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ADDITIVE_MASKS_H_
