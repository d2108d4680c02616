// Which cell types come later in a computation than which.
#ifndef CHAIRLIFT_BATCHING_TYPE_PHASES_H_
#define CHAIRLIFT_BATCHING_TYPE_PHASES_H_

#include <algorithm>
#include <vector>

#include "batching/cell_graph.h"

namespace chairlift {

// A type's phase is one after those of the types that its first node ever seen reads from: 0 for
// leaves and encoders, 1 for inner nodes and decoders. Types may read from each other in circles.
class TypePhases {
 public:
  static constexpr int kUnknown = -1;

  int Of(CellType type) const { return type < phases_.size() ? phases_[type] : kUnknown; }

  // Tells `learned(type)` of every type that is new.
  template <typename Learned>
  void Learn(const CellGraph& graph, Learned&& learned) {
    for (int32_t node = 0; node < graph.size(); ++node) Learn(graph, node, learned);
  }
  // The same of one node, where every type's first node comes before its others.
  template <typename Learned>
  void Learn(const CellGraph& graph, int32_t node, Learned&& learned) {
    if (Of(graph.type(node)) != kUnknown) return;
    int phase = 0;
    for (const int32_t dependency : graph.dependencies(node)) {
      phase = std::max(phase, Of(graph.type(dependency)) + 1);
    }
    Learn(graph.type(node), phase, learned);
  }
  template <typename Learned>
  void Learn(CellType type, int phase, Learned&& learned) {
    if (type >= phases_.size()) phases_.resize(type + 1, kUnknown);
    if (phases_[type] != kUnknown) return;
    phases_[type] = phase;
    learned(type);
  }

 private:
  std::vector<int> phases_;  // by type
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TYPE_PHASES_H_
