// One request's cells and their dependencies, in flat arrays.
#ifndef CHAIRLIFT_BATCHING_CELL_GRAPH_H_
#define CHAIRLIFT_BATCHING_CELL_GRAPH_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace chairlift {

// Cells with equal types may share a batch: the same model (or cell of it) with equal non-batch
// shapes. Types are assigned by the engine, small and dense per scheduler.
using CellType = uint32_t;

// Nodes are numbered from 0 in the order of Add(). A node reads only from earlier nodes. Nodes are
// stored as runs: a single node, or a chain of nodes that differ only in their step. Building
// allocates only when vectors grow, not per node. A model that runs as a whole is a graph of one
// node.
//
// For a model with inputs of varying length, the rows of that node are tokens if batches are
// ragged. If batches are padded, its rows are sequences, and the graph's length is that of its
// longest sequence.
class CellGraph {
 public:
  // Nodes [first, first + count). If there are several, each has one row, and each but the first
  // follows the previous one and reads from nothing else.
  struct Run {
    CellType type = 0;
    int32_t rows = 1;  // of each node
    int32_t first = 0;
    int32_t count = 1;
    int32_t follows = -1;                   // only for the first node
    std::span<const int32_t> dependencies;  // of the first node; may repeat
    bool divisible = false;                 // added by AddDivisible()
    int32_t last() const { return first + count - 1; }
  };

  // Reserves room for `runs` runs with `dependencies` dependencies in total.
  void Reserve(int32_t runs, int32_t dependencies) {
    runs_.reserve(static_cast<size_t>(runs));
    dependencies_.reserve(static_cast<size_t>(dependencies));
  }

  // `rows` is what the node adds to a batch: 1 for a step, T for a projection over T steps at once;
  // may be 0. Returns the node's number.
  //
  // `follows`: the dependency whose task may run this node as its next step (Task); −1: none. Both
  // must have this type and one row, and a node may be followed by only one node.
  //
  // `count` > 1 adds a run of `count` nodes of one row and returns the number of the first.
  int32_t Add(CellType type, int32_t rows = 1, std::span<const int32_t> dependencies = {},
              int32_t follows = -1, int32_t count = 1) {
    const int32_t node = size_;
    for (const int32_t dependency : dependencies) {
      assert(dependency >= 0 && dependency < node);
      dependencies_.push_back(dependency);
    }
    assert(follows < 0 || (type == this->type(follows) && rows == 1 && this->rows(follows) == 1));
    assert(count == 1 || (count > 1 && rows == 1));
    runs_.push_back({type, rows, node, static_cast<int32_t>(dependencies_.size()), follows, false});
    size_ += count;
    return node;
  }
  int32_t Add(CellType type, int32_t rows, std::initializer_list<int32_t> dependencies,
              int32_t follows = -1, int32_t count = 1) {
    return Add(type, rows, std::span<const int32_t>(dependencies.begin(), dependencies.size()),
               follows, count);
  }
  // A node from which a task may take only some rows (NodeRef::rows). The request then grows by a
  // node of the remaining rows.
  int32_t AddDivisible(CellType type, int32_t rows) {
    const int32_t node = Add(type, rows);
    runs_.back().divisible = true;
    return node;
  }
  // Adds `count` ≥ 1 nodes of one row. Each follows the previous one; the first reads from
  // `dependencies`. Returns the number of the first.
  int32_t AddChain(CellType type, int32_t count, std::span<const int32_t> dependencies = {}) {
    return Add(type, 1, dependencies, -1, count);
  }

  void set_length(int32_t length) { length_ = length; }
  // Length of the request's longest sequence; 0 if rows have no length.
  int32_t length() const { return length_; }

  void set_turn(uint64_t turn) { turn_ = turn; }
  // If a policy has requests take turns, requests with the same number share one turn. 0: the
  // request has its own turn.
  uint64_t turn() const { return turn_; }

  void set_state(int64_t state) { state_ = state; }
  // Units of state that the request may grow to before it ends; 0: not counted.
  int64_t state() const { return state_; }
  void set_state_rows(int32_t rows) { state_rows_ = rows; }
  // For a graph of one divisible node: rows per unit of state, over all its nodes so far. The
  // request may then be preempted (NodeRef::set_back). 0: it holds all of state() from its start.
  int32_t state_rows() const { return state_rows_; }

  int32_t size() const { return size_; }
  int32_t num_runs() const { return static_cast<int32_t>(runs_.size()); }
  Run run(int32_t index) const {
    const auto at = static_cast<size_t>(index);
    const Stored& stored = runs_[at];
    const int32_t begin = at == 0 ? 0 : runs_[at - 1].dependencies_end;
    const int32_t end = at + 1 < runs_.size() ? runs_[at + 1].first : size_;
    return {.type = stored.type,
            .rows = stored.rows,
            .first = stored.first,
            .count = end - stored.first,
            .follows = stored.follows,
            .dependencies = {dependencies_.data() + begin,
                             dependencies_.data() + stored.dependencies_end},
            .divisible = stored.divisible};
  }
  // The run that a node belongs to; O(log runs).
  int32_t RunOf(int32_t node) const {
    if (num_runs() == size_) return node;
    const auto after =
        std::upper_bound(runs_.begin(), runs_.end(), node,
                         [](int32_t n, const Stored& stored) { return n < stored.first; });
    return static_cast<int32_t>(after - runs_.begin()) - 1;
  }
  CellType type(int32_t node) const { return runs_[static_cast<size_t>(RunOf(node))].type; }
  int32_t rows(int32_t node) const { return runs_[static_cast<size_t>(RunOf(node))].rows; }

 private:
  struct Stored {
    CellType type;
    int32_t rows;
    int32_t first;
    int32_t dependencies_end;
    int32_t follows;
    bool divisible;
  };
  std::vector<Stored> runs_;
  std::vector<int32_t> dependencies_;
  int32_t size_ = 0;
  int32_t length_ = 0;
  uint64_t turn_ = 0;
  int64_t state_ = 0;
  int32_t state_rows_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_CELL_GRAPH_H_
