// What the rules of a proof read from a node: its inputs, their ranks, and the operator's own
// arguments (axes, shapes, ranges) as far as their elements are known. The proofs of this folder
// and of ragged/ derive from it with what they know about values.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_NODE_READER_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_NODE_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/batch_axis/extent.h"
#include "graph/ir.h"
#include "ops/axis_map.h"

namespace chairlift::batch_axis {

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
  virtual StatusOr<std::vector<Extent>> Dims(int i) const = 0;
  // The elements of integer input i; null if unknown.
  virtual const std::vector<Extent>* Elements(int i) const = 0;
  // The elements if all are constant numbers.
  StatusOr<std::vector<int64_t>> Numbers(int i) const;

  // The operator's description of its axes (OperatorDef::axes).
  StatusOr<AxisMap> Axes() const;

  // --- Arguments of operators, for input 0 -------------------------------------------------------
  // For Slice: by sliced axis, what is known about the range.
  struct Cut {
    int axis = 0;
    std::optional<int64_t> start;
    std::optional<Extent> end;
    std::optional<int64_t> step;
  };
  StatusOr<std::vector<Cut>> Cuts() const;

  // For Reshape of an input with the dimensions `from`.
  struct WantedShape {
    std::vector<Extent> dims;            // with those copied from the input filled in
    std::optional<size_t> deduced = {};  // the dimension of -1
    Extent known;                        // the product of all other dimensions
  };
  StatusOr<WantedShape> Wanted(const std::vector<Extent>& from) const;
  // With the one dimension whose size has another name than in the input, of `total` entries, which
  // must have as many for the node to run: [length, 12] is [n, 3, 4] only if n is the length.
  static void NameAsInput(const Extent& total, WantedShape& wanted);
  // For Flatten: the two dimensions that it makes from `from`.
  StatusOr<std::vector<Extent>> Flattened(const std::vector<Extent>& from) const;

 protected:
  NodeReader(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}
  ~NodeReader() = default;

 private:
  const Graph& graph_;
  const Node& node_;
};

// Attributes start and end of Shape, as the range of dimensions that it returns.
std::pair<int64_t, int64_t> ShapeRange(const Attributes& attributes, int64_t rank);

// "[4,batch*length]".
std::string ToString(const std::vector<Extent>& dims);

}  // namespace chairlift::batch_axis

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_NODE_READER_H_
