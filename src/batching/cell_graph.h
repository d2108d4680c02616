// One request's cells and what each reads from, in three flat arrays.
#ifndef CHAIRLIFT_BATCHING_CELL_GRAPH_H_
#define CHAIRLIFT_BATCHING_CELL_GRAPH_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace chairlift {

// Cells that may share a batch have equal types: one model (or cell of it) with equal non-batch
// shapes. Given out by the engine, small and dense per scheduler.
using CellType = uint32_t;

// Nodes are numbered from 0 in the order added; a node reads only from earlier ones. Building it
// allocates as vectors grow, never per node. A model that runs as a whole is a graph of one node.
//
// Where a model's inputs vary in length, that node's rows are its tokens if batches are ragged. If
// they are padded, its rows are its sequences, and the graph has a length, its longest one's.
class CellGraph {
 public:
  // Makes room for so many nodes, and dependencies of them.
  void Reserve(int32_t nodes, int32_t dependencies) {
    nodes_.reserve(static_cast<size_t>(nodes));
    dependencies_.reserve(static_cast<size_t>(dependencies));
  }

  // `rows` is what the node adds to a batch: 1 for a step, T for a projection over T steps at once;
  // 0 is possible. Returns the node's number.
  //
  // `follows`: the dependency whose task may run this node as its next step (Task); −1: none. Both
  // are of this type and have one row, and no other node follows the same one.
  int32_t Add(CellType type, int32_t rows = 1, std::span<const int32_t> dependencies = {},
              int32_t follows = -1) {
    const int32_t node = size();
    for (const int32_t dependency : dependencies) {
      assert(dependency >= 0 && dependency < node);
      dependencies_.push_back(dependency);
    }
    assert(follows < 0 || (type == this->type(follows) && rows == 1 && this->rows(follows) == 1));
    nodes_.push_back({type, rows, static_cast<int32_t>(dependencies_.size()), follows});
    return node;
  }
  int32_t Add(CellType type, int32_t rows, std::initializer_list<int32_t> dependencies,
              int32_t follows = -1) {
    return Add(type, rows, std::span<const int32_t>(dependencies.begin(), dependencies.size()),
               follows);
  }
  // `count` ≥ 1 nodes of one row, each following the one before, the first reading from
  // `dependencies`.
  // Returns the first one's number.
  int32_t AddChain(CellType type, int32_t count, std::span<const int32_t> dependencies = {}) {
    const int32_t first = Add(type, 1, dependencies);
    for (int32_t node = first; node < first + count - 1; ++node) Add(type, 1, {node}, node);
    return first;
  }

  void set_length(int32_t length) { length_ = length; }
  // Of the request's longest sequence; 0 where rows have no length.
  int32_t length() const { return length_; }

  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  CellType type(int32_t node) const { return nodes_[static_cast<size_t>(node)].type; }
  int32_t rows(int32_t node) const { return nodes_[static_cast<size_t>(node)].rows; }
  int32_t follows(int32_t node) const { return nodes_[static_cast<size_t>(node)].follows; }
  std::span<const int32_t> dependencies(int32_t node) const {
    const auto at = static_cast<size_t>(node);
    const int32_t begin = at == 0 ? 0 : nodes_[at - 1].dependencies_end;
    return {dependencies_.data() + begin, dependencies_.data() + nodes_[at].dependencies_end};
  }

 private:
  struct Node {
    CellType type;
    int32_t rows;
    int32_t dependencies_end;
    int32_t follows;
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> dependencies_;
  int32_t length_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_CELL_GRAPH_H_
