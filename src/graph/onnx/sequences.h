// Sequences inside a model, resolved at load: their operators become Split, Gather and Concat.
#ifndef CHAIRLIFT_GRAPH_ONNX_SEQUENCES_H_
#define CHAIRLIFT_GRAPH_ONNX_SEQUENCES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/onnx/normalise.h"

namespace chairlift {

// A sequence as it is known at load. Either its elements are known one by one, or it is a tensor
// cut into its entries along an axis, any number of them.
struct Sequence {
  std::vector<ValueId> elements = {};

  ValueId whole = kNoValue;  // present: the tensor that is cut
  int axis = 0;
  bool keeps_axis = true;  // elements have size 1 along the axis; false: they do not have it
};

// The most elements that a sequence known one by one has.
inline constexpr int64_t kMaxSequenceElements = 4096;

bool IsSequenceOperator(const OnnxNode& node);
// The names of the sequence operators, for the reference.
std::vector<std::string_view> SequenceOperators();

// An operand of a node with sequences. Neither a sequence nor a value: it is absent.
struct SequenceOperand {
  ValueId value = kNoValue;
  const Sequence* sequence = nullptr;
};

// The single output of such a node: a sequence, or the tensor `value`.
struct SequenceResult {
  ValueId value = kNoValue;
  Sequence sequence = {};
};

// Rewrites a sequence operator. `operands` stand for node.inputs. Unimplemented says what about the
// sequence is not known at load.
StatusOr<SequenceResult> ResolveSequence(const OnnxNode& node,
                                         const std::vector<SequenceOperand>& operands,
                                         Rewriter& rewriter);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_SEQUENCES_H_
