// Rewrites older opset forms of an operator to the newest one, the only form that operators know.
#ifndef CHAIRLIFT_GRAPH_ONNX_NORMALISE_H_
#define CHAIRLIFT_GRAPH_ONNX_NORMALISE_H_

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
  int opset = 0;       // the opset whose form the node has
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<ValueId> captures;  // outside values that its sub-graphs read
  // For a node that draws random numbers: the request's seeds, and the node's own number.
  ValueId seeds = kNoValue;
  int64_t stream = 0;
  std::string Describe() const;  // "node 'encoder/add' (Add, opset 9)"
};

// The changes that a rule may make to the graph around its node.
class Rewriter {
 public:
  virtual ~Rewriter() = default;
  // What is known about a value; for kNoValue an info of undefined type.
  virtual ValueInfo info(ValueId id) const = 0;
  virtual ValueId Constant(const Tensor& tensor) = 0;
  // Adds a node, normalised, before the current one, and returns its only output. `opset` is the
  // version of its form.
  virtual StatusOr<ValueId> Add(std::string_view op_type, int opset, Attributes attributes,
                                std::vector<ValueId> inputs) = 0;
  // A value that a node added later will define.
  virtual ValueId NewValue() = 0;
  // Adds `node`, normalised, before the current one. Its outputs are new values, or outputs of the
  // current node, which then loses them.
  virtual Status AddBefore(OnnxNode node) = 0;
  // Adds `node` after the current one.
  virtual void AddAfter(OnnxNode node) = 0;

  ValueId ConstantInts(std::span<const int64_t> values);  // int64, rank 1
  template <typename T>
  ValueId ConstantScalar(T value) {
    return Constant(Tensor::Scalar<T>(value));
  }
};

// Rewrites nodes of `op_type` from a form older than opset `until` to the form of `until`. It may
// also change the operator.
struct NormaliseRule {
  std::string_view op_type;
  int until;
  Status (*apply)(OnnxNode& node, Rewriter& rewriter);
};
// All rules for ai.onnx. Operators of other domains are rewritten in contrib/.
std::span<const NormaliseRule> NormaliseRules();

// Whether the node, as it is in the file, needs OnnxNode::seeds.
bool DrawsRandomNumbers(const OnnxNode& node, const Rewriter& rewriter);

// Applies the rules one after the other, oldest first, until none matches the node.
Status Normalise(OnnxNode& node, Rewriter& rewriter);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_NORMALISE_H_
