// Numbers that follow from indices and sizes, including the batch size. Exporters compute them to
// look something up: arange(batch) beside arange(keys). Their elements are followed one by one
// (graph/analysis). A node that reads each row at its own number keeps rows apart.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_PLACES_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_PLACES_H_

#include <optional>
#include <string>
#include <vector>

#include "graph/analysis/pattern.h"
#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {

class Places {
 public:
  // All outlive this object.
  Places(const Graph& graph, const std::string& symbol, std::vector<State>& states)
      : graph_(graph), symbol_(symbol), states_(states), reader_(graph) {}

  // Follows the elements of the node's output, where those of its inputs are known.
  void Read(const Node& node);
  // Whether anything is known of the elements of the node's output, or of their number.
  bool Knows(const Node& node) const;
  // Sets the states of the outputs of a node that reads places, or that no other rule follows.
  // Unimplemented: rows are not known to stay apart.
  Status Follow(const Node& node);

 private:
  // Where rows are picked by their own numbers: entry n along `axis` of an index has n in `column`.
  struct Pick {
    int axis = 0, column = 0;
  };

  bool DependsOnBatch(const Line& line, int axis) const;
  // The axis whose index is the row's number n. Each entry must be within [n·inner, n·inner +
  // inner), at a place in this range that nothing else of the batch determines. −1: there is no
  // such axis.
  int OwnAxis(const Line& line, const analysis::Pattern& pattern, int64_t inner = 1) const;
  State StateOf(const analysis::Pattern& pattern) const;
  std::optional<Pick> PickOf(ValueId id) const;
  // Whether the value is rows along `axis`, with one entry per row.
  bool PlainRows(ValueId id, int axis) const;
  std::optional<State> Concat(const Context& c) const;
  std::optional<State> Gather(const Context& c) const;
  std::optional<State> GatherElements(const Context& c) const;
  std::optional<State> GatherNd(const Context& c) const;
  std::optional<State> ScatterNd(const Context& c) const;

  const Graph& graph_;
  const std::string& symbol_;
  std::vector<State>& states_;
  analysis::PatternReader reader_;
};

}  // namespace chairlift::batch_axis

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_PLACES_H_
