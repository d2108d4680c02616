// Helpers of rewrites: readers of values, constants, replacing and removing.
#ifndef CHAIRLIFT_GRAPH_PASSES_REWRITE_H_
#define CHAIRLIFT_GRAPH_PASSES_REWRITE_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// The producer and the readers of each value, at the time of construction.
class Links {
 public:
  explicit Links(const Graph& graph);

  // The node that computes the value; -1 for inputs, constants and kNoValue.
  int producer(ValueId id) const { return id == kNoValue ? -1 : producers_[id]; }
  // The nodes that read it, once for each input that does.
  const std::vector<int>& readers(ValueId id) const { return readers_[id]; }
  bool is_output(ValueId id) const { return is_output_[id]; }
  // The only node that reads it, through one of its inputs; -1 if there is another reader or the
  // value is a graph output.
  int SoleReader(ValueId id) const {
    return !is_output_[id] && readers_[id].size() == 1 ? readers_[id][0] : -1;
  }
  // Whether nothing reads it.
  bool Unused(ValueId id) const { return !is_output_[id] && readers_[id].empty(); }

 private:
  std::vector<int> producers_;
  std::vector<std::vector<int>> readers_;
  std::vector<bool> is_output_;
};

inline bool IsByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; }

// Whether the node is the operator of that name of ai.onnx (or of `domain`).
bool Is(const Node& node, std::string_view name, std::string_view domain = "");

// Input i if it is a constant; else null.
const Tensor* ConstantInput(const Graph& graph, const Node& node, int i);
// The value of a floating-point constant of one element.
std::optional<double> ScalarInput(const Graph& graph, const Node& node, int i);
// The elements of an integer constant.
std::optional<std::vector<int64_t>> IntegersInput(const Graph& graph, const Node& node, int i);
// What is known about the values, for the functions of an OperatorDef.
std::vector<ValueInfo> InfosOf(const Graph& graph, const std::vector<ValueId>& ids);
// A new constant value.
ValueId AddConstant(Graph& graph, const std::string& name, Tensor t);
ValueId AddIntegers(Graph& graph, const std::string& name, std::span<const int64_t> values);
// A new last node, and its output, which gets its name.
ValueId AddNode(Graph& graph, const std::string& name, const OperatorDef* def,
                std::vector<ValueId> inputs, Attributes attributes = {});
ValueId AddNode(Graph& graph, const std::string& name, std::string_view op,
                std::vector<ValueId> inputs, Attributes attributes = {},
                std::string_view domain = "");
// One attribute.
Attributes Attribute(std::string name, AttributeValue value);

// Everything that reads `from`, including graph outputs, now reads `to`.
void ReplaceReads(Graph& graph, ValueId from, ValueId to);
// Removes the marked nodes.
void RemoveNodes(Graph& graph, const std::vector<bool>& removed);
// Sorts nodes topologically, otherwise keeping their order. The graph must be acyclic.
void SortNodes(Graph& graph);

// For a node of two inputs: the one that is not `id`; kNoValue if neither or both are.
ValueId OtherInput(const Node& node, ValueId id);
// The inputs of a node of two, one of which is a float constant of one element.
struct ScalarAndOther {
  double scalar;
  ValueId other;
};
std::optional<ScalarAndOther> SplitScalar(const Graph& graph, const Node& node);
// Whether both are equal up to float32 rounding.
bool Near(double a, double b);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_REWRITE_H_
