// How a rule writes the nodes that replace a contributed operator.
#ifndef CHAIRLIFT_GRAPH_ONNX_CONTRIB_MAKER_H_
#define CHAIRLIFT_GRAPH_ONNX_CONTRIB_MAKER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/onnx/normalise.h"

namespace chairlift::contrib {

// The opset of the nodes that rules write.
inline constexpr int kForm = 21;

// Adds nodes before the current node, which becomes the last of them. The first error is kept;
// values made after it are kNoValue, so that rules read like formulas. Become() returns the error.
// Not thread-safe; must not outlive the node or the rewriter.
class Maker {
 public:
  Maker(OnnxNode& node, Rewriter& rewriter)
      : node_(node), rewriter_(rewriter), outputs_(node.outputs) {}

  // The node as it is in the file.
  bool has(size_t input) const {
    return input < node_.inputs.size() && node_.inputs[input] != kNoValue;
  }
  ValueId in(size_t input) const { return has(input) ? node_.inputs[input] : kNoValue; }
  size_t num_inputs() const { return node_.inputs.size(); }
  // Whether the file names the output.
  bool wants(size_t output) const {
    return output < outputs_.size() && outputs_[output] != kNoValue;
  }
  const Attributes& attributes() const { return node_.attributes; }
  const std::string& op_type() const { return node_.op_type; }

  ValueInfo info(ValueId id) const { return rewriter_.info(id); }
  const SymbolicShape shape(ValueId id) const { return rewriter_.info(id).shape; }
  // Fails if the rank is unknown.
  int Rank(ValueId id, std::string_view what);
  // Dimension `axis`, counted from the end if negative. Fails if it is not a known number.
  int64_t Size(ValueId id, int axis, std::string_view what);

  ValueId Make(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  // Like Make, for an operator of domain chairlift.
  ValueId MakeOwn(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  // Like Make, for `count` outputs.
  std::vector<ValueId> MakeSeveral(std::string_view op, std::vector<ValueId> inputs, size_t count,
                                   Attributes attributes = {});
  // Like Make, for a value that is output `output` of the file's node, if it names that output.
  ValueId MakeOutput(size_t output, std::string_view op, std::vector<ValueId> inputs,
                     Attributes attributes = {}, std::string_view domain = "");
  ValueId Ints(const std::vector<int64_t>& values) { return rewriter_.ConstantInts(values); }
  ValueId Floats(const Shape& shape, const std::vector<float>& values) {
    return Constant(Tensor::Of<float>(shape, values));
  }
  ValueId ScalarOf(int64_t value) { return rewriter_.ConstantScalar(value); }
  ValueId Constant(const Tensor& tensor) { return rewriter_.Constant(tensor); }
  // With the element type of `like`.
  ValueId ScalarLike(ValueId like, float value);

  ValueId Transpose(ValueId id, std::vector<int64_t> perm);
  ValueId Unsqueeze(ValueId id, const std::vector<int64_t>& axes) {
    return Make("Unsqueeze", {id, Ints(axes)});
  }
  ValueId Squeeze(ValueId id, const std::vector<int64_t>& axes) {
    return Make("Squeeze", {id, Ints(axes)});
  }
  // 0 keeps a dimension, -1 is deduced.
  ValueId Reshape(ValueId id, const std::vector<int64_t>& dims) {
    return Make("Reshape", {id, Ints(dims)});
  }
  // A scale or zero point as a scalar; [1] is converted. kNoValue stays kNoValue.
  ValueId AsScalar(ValueId id);
  ValueId CastToFloat(ValueId id) { return Make("Cast", {id}, To(kOnnxFloat)); }
  ValueId CastToInt32(ValueId id) { return Make("Cast", {id}, To(kOnnxInt32)); }
  ValueId CastToInt64(ValueId id) { return Make("Cast", {id}, To(kOnnxInt64)); }
  ValueId CastToDouble(ValueId id) { return Make("Cast", {id}, To(kOnnxDouble)); }
  // The parts of `id` along `axis`.
  std::vector<ValueId> Split(ValueId id, int64_t axis, const std::vector<int64_t>& sizes);

  // Keeps only the first error.
  void Fail(Status status) { first_error_.Update(std::move(status)); }
  bool ok() const { return first_error_.ok(); }
  const Status& status() const { return first_error_; }
  // Replaces the current node by `op`, which computes its output 0.
  Status Become(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  // The same, for these outputs of the file's node.
  Status BecomeWith(std::initializer_list<size_t> outputs, std::string_view op,
                    std::vector<ValueId> inputs, Attributes attributes = {});

 private:
  static constexpr int64_t kOnnxFloat = 1, kOnnxInt32 = 6, kOnnxInt64 = 7, kOnnxDouble = 11;
  static Attributes To(int64_t type) {
    Attributes attributes;
    attributes.Set("to", type);
    return attributes;
  }
  void Add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes,
           std::vector<ValueId> outputs, std::string_view domain = "");

  OnnxNode& node_;
  Rewriter& rewriter_;
  std::vector<ValueId> outputs_;  // the file's outputs; kNoValue once made
  Status first_error_;
};

// Attributes for a new node.
inline Attributes With(std::initializer_list<std::pair<const char*, AttributeValue>> values) {
  Attributes attributes;
  for (const auto& [name, value] : values) attributes.Set(name, value);
  return attributes;
}

}  // namespace chairlift::contrib

#endif  // CHAIRLIFT_GRAPH_ONNX_CONTRIB_MAKER_H_
