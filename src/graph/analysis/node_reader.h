// What the rules of a proof read from a node: its inputs, their ranks, and the operator's own
// arguments (axes, shapes, ranges) as far as their elements are known. Each analysis derives from
// it with what it knows about values.
#ifndef CHAIRLIFT_GRAPH_ANALYSIS_NODE_READER_H_
#define CHAIRLIFT_GRAPH_ANALYSIS_NODE_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/analysis/shapes.h"
#include "graph/ir.h"
#include "ops/axis_map.h"

namespace chairlift::analysis {

// Errors (Unimplemented) say what is unknown, worded to follow the node's name.
class NodeReader {
 public:
  const Attributes& attributes() const { return node_.attributes; }
  std::string_view op() const { return node_.def->name; }
  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  int num_inputs() const { return static_cast<int>(node_.inputs.size()); }
  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }
  bool has(int i) const {
    return i < num_inputs() && node_.inputs[static_cast<size_t>(i)] != kNoValue;
  }
  ValueId id(int i) const { return node_.inputs[static_cast<size_t>(i)]; }

  StatusOr<int> Rank(int i) const;
  StatusOr<int> OutputRank(int i) const;
  // `axis` as an index from the front of `rank` dimensions.
  static StatusOr<int> Axis(int64_t axis, int rank);
  // Attribute `axis`, for input 0.
  StatusOr<int> OwnAxis(int64_t fallback) const;

  // The dimensions of input i; unknown ones get new symbols.
  virtual StatusOr<Dims> DimsOf(int i) const = 0;
  // The elements of integer input i; null if unknown.
  virtual const Dims* Elements(int i) const = 0;
  // The elements if all are constant numbers.
  StatusOr<std::vector<int64_t>> Numbers(int i) const;

  // The operator's description of its axes (OperatorDef::axes).
  StatusOr<AxisMap> Axes() const;

  // --- Arguments of operators, for input 0 -------------------------------------------------------
  // For Slice: by sliced axis, what is known about the range.
  struct Cut {
    int axis = 0;
    std::optional<Line> start, end;
    std::optional<int64_t> step;
  };
  StatusOr<std::vector<Cut>> Cuts() const;

 protected:
  // Input i's shape: its rank, and the dimensions that are known.
  virtual SymbolicShape ShapeOf(int i) const {
    return graph_.values[static_cast<size_t>(id(i))].shape;
  }
  NodeReader(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}
  ~NodeReader() = default;

 private:
  const Graph& graph_;
  const Node& node_;
};

}  // namespace chairlift::analysis

#endif  // CHAIRLIFT_GRAPH_ANALYSIS_NODE_READER_H_
