// Which cell types come later in a computation than others.
#ifndef CHAIRLIFT_BATCHING_TYPE_PHASES_H_
#define CHAIRLIFT_BATCHING_TYPE_PHASES_H_

#include <algorithm>
#include <vector>

#include "batching/cell_graph.h"

namespace chairlift {

// A type's phase is one after those of the types that its first observed node reads from: 0 for
// leaves and encoders, 1 for inner nodes and decoders. Types may read from each other in cycles.
class TypePhases {
 public:
  static constexpr int kUnknown = -1;

  int Of(CellType type) const { return type < phases_.size() ? phases_[type] : kUnknown; }

  // Both return whether the type was new.
  bool Learn(CellType type, int phase) {
    if (type >= phases_.size()) phases_.resize(type + 1, kUnknown);
    if (phases_[type] != kUnknown) return false;
    phases_[type] = phase;
    return true;
  }
  // The phase of a run, by the types of the nodes that it reads from, which must be known.
  bool Learn(const CellGraph& graph, const CellGraph::Run& run) {
    if (Of(run.type) != kUnknown) return false;
    int phase = 0;
    for (const int32_t dependency : run.dependencies) {
      phase = std::max(phase, Of(graph.type(dependency)) + 1);
    }
    return Learn(run.type, phase);
  }

 private:
  std::vector<int> phases_;  // by type
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TYPE_PHASES_H_
