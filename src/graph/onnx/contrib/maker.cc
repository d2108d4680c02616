#include "graph/onnx/contrib/maker.h"

#include <fmt/format.h>

#include "graph/onnx/normalise_rules.h"

namespace chairlift::contrib {

int Maker::Rank(ValueId id, std::string_view what) {
  const SymbolicShape shape = rewriter_.info(id).shape;
  if (shape.has_rank()) return shape.rank();
  Fail(Unimplemented("the number of dimensions of {} is not known", what));
  return 0;
}

int64_t Maker::Size(ValueId id, int axis, std::string_view what) {
  const int rank = Rank(id, what);
  if (!ok()) return 1;
  const SymbolicShape shape = rewriter_.info(id).shape;
  const int from_left = axis < 0 ? axis + rank : axis;
  if (from_left < 0 || from_left >= rank) {
    Fail(InvalidArgument("{} {} has no dimension {}", what, shape.ToString(), axis));
    return 1;
  }
  if (shape[from_left].known()) return shape[from_left].value();
  Fail(Unimplemented("dimension {} of {} {} has to be a known number", from_left, what,
                     shape.ToString()));
  return 1;
}

void Maker::Add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes,
                std::vector<ValueId> outputs, std::string_view domain) {
  if (!ok()) return;
  OnnxNode node;
  node.name = fmt::format("{}/{}", node_.name, op);
  node.op_type = op;
  node.domain = domain;
  node.opset = kForm;
  node.attributes = std::move(attributes);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  Fail(rewriter_.AddBefore(std::move(node)));
}

ValueId Maker::Make(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  if (!ok()) return kNoValue;
  const ValueId made = rewriter_.NewValue();
  Add(op, std::move(inputs), std::move(attributes), {made});
  return made;
}

ValueId Maker::MakeOwn(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  if (!ok()) return kNoValue;
  const ValueId made = rewriter_.NewValue();
  Add(op, std::move(inputs), std::move(attributes), {made}, "chairlift");
  return made;
}

std::vector<ValueId> Maker::MakeSeveral(std::string_view op, std::vector<ValueId> inputs,
                                        size_t count, Attributes attributes) {
  std::vector<ValueId> made(count, kNoValue);
  if (!ok()) return made;
  for (ValueId& id : made) id = rewriter_.NewValue();
  Add(op, std::move(inputs), std::move(attributes), made);
  return made;
}

ValueId Maker::MakeOutput(size_t output, std::string_view op, std::vector<ValueId> inputs,
                          Attributes attributes, std::string_view domain) {
  if (!ok()) return kNoValue;
  const ValueId made =
      wants(output) ? std::exchange(outputs_[output], kNoValue) : rewriter_.NewValue();
  Add(op, std::move(inputs), std::move(attributes), {made}, domain);
  return made;
}

ValueId Maker::AsScalar(ValueId id) {
  if (id == kNoValue) return id;
  const SymbolicShape scalar = shape(id);
  return scalar.has_rank() && scalar.rank() == 0 ? id : Reshape(id, {});
}

ValueId Maker::ScalarLike(ValueId like, float value) {
  if (!ok()) return kNoValue;
  StatusOr<ValueId> scalar = normalise::ScalarLike(rewriter_, like, value);
  Fail(scalar.status());
  return scalar.ok() ? *scalar : kNoValue;
}

ValueId Maker::Transpose(ValueId id, std::vector<int64_t> perm) {
  return Make("Transpose", {id}, With({{"perm", std::move(perm)}}));
}

std::vector<ValueId> Maker::Split(ValueId id, int64_t axis, const std::vector<int64_t>& sizes) {
  return MakeSeveral("Split", {id, rewriter_.ConstantInts(sizes)}, sizes.size(),
                     With({{"axis", axis}}));
}

Status Maker::Become(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  return BecomeWith({0}, op, std::move(inputs), std::move(attributes));
}

Status Maker::BecomeWith(std::initializer_list<size_t> outputs, std::string_view op,
                         std::vector<ValueId> inputs, Attributes attributes) {
  std::vector<ValueId> taken;
  for (const size_t output : outputs) {
    taken.push_back(wants(output) ? std::exchange(outputs_[output], kNoValue) : kNoValue);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] != kNoValue) Fail(Unimplemented("its output {} is not supported", i));
  }
  CHAIRLIFT_RETURN_IF_ERROR(first_error_);
  node_.op_type = op;
  node_.domain.clear();
  node_.opset = kForm;
  node_.attributes = std::move(attributes);
  node_.inputs = std::move(inputs);
  node_.outputs = std::move(taken);
  return absl::OkStatus();
}

}  // namespace chairlift::contrib
