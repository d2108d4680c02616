// Rewriting older opset forms of an operator into the newest one, which is all that operators know.
#ifndef CHAIRLIFT_GRAPH_ONNX_NORMALISE_H_
#define CHAIRLIFT_GRAPH_ONNX_NORMALISE_H_

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// A node on its way from the file to the graph.
struct OnnxNode {
  std::string name;
  std::string op_type;
  std::string domain;  // "" for ai.onnx
  int opset = 0;       // whose form the node has
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<ValueId> captures;  // what its sub-graphs read from outside
  std::string Describe() const;   // "node 'encoder/add' (Add, opset 9)"
};

// What a rule may do to the graph around its node.
class Rewriter {
 public:
  virtual ~Rewriter() = default;
  // What is known of a value; kNoValue gives an info of undefined type.
  virtual ValueInfo info(ValueId id) const = 0;
  virtual ValueId Constant(const Tensor& tensor) = 0;
  // Adds a node (itself normalised) before the one at hand, and returns its only output.
  // `opset` is whose form it has.
  virtual StatusOr<ValueId> Add(std::string_view op_type, int opset, Attributes attributes,
                                std::vector<ValueId> inputs) = 0;
  // A value that a node added later defines.
  virtual ValueId NewValue() = 0;
  // Adds `node`, normalised, before the one at hand. Its outputs are new values, or outputs of the
  // one at hand, which gives them up.
  virtual Status AddBefore(OnnxNode node) = 0;
  // Adds `node` after the one at hand.
  virtual void AddAfter(OnnxNode node) = 0;

  ValueId ConstantInts(std::span<const int64_t> values);  // int64, rank 1
  template <typename T>
  ValueId ConstantScalar(T value) {
    return Constant(Tensor::Scalar<T>(value));
  }
};

// Rewrites nodes of `op_type` in a form older than opset `until` into the form of `until`. It may
// change the operator altogether.
struct NormaliseRule {
  std::string_view op_type;
  int until;
  Status (*apply)(OnnxNode& node, Rewriter& rewriter);
  // Attributes that are inputs from opset `until` on: a node of a newer form that has one still
  // means something else than it would be taken for.
  std::array<std::string_view, 3> inputs_since = {};
};
// All rules, of ai.onnx. What other domains have is rewritten in contrib/.
std::span<const NormaliseRule> NormaliseRules();

// Applies the rules one after the other, oldest first, until none holds for the node.
Status Normalise(OnnxNode& node, Rewriter& rewriter);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_NORMALISE_H_
