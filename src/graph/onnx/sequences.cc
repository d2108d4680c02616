// Rewrites the operators of sequences whose elements are known at load.
#include "graph/onnx/sequences.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "graph/onnx/normalise_rules.h"
#include "ops/axes.h"

namespace chairlift {
namespace {

using normalise::kNewestOpset;

Attributes Axis(int64_t axis) {
  Attributes attributes;
  attributes.Set("axis", axis);
  return attributes;
}

class Resolver {
 public:
  Resolver(const OnnxNode& node, const std::vector<SequenceOperand>& operands, Rewriter& rewriter)
      : node_(node), operands_(operands), rewriter_(rewriter) {}

  StatusOr<SequenceResult> Empty() { return Of({}); }
  StatusOr<SequenceResult> Construct();
  StatusOr<SequenceResult> Split();
  StatusOr<SequenceResult> At();
  StatusOr<SequenceResult> Insert();
  StatusOr<SequenceResult> Erase();
  StatusOr<SequenceResult> Length();
  StatusOr<SequenceResult> Concat();

 private:
  static SequenceResult Of(std::vector<ValueId> elements) {
    return {.sequence = {.elements = std::move(elements)}};
  }
  StatusOr<ValueId> Add(const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return rewriter_.Add(op, kNewestOpset, std::move(attributes), std::move(inputs));
  }
  bool Has(size_t i) const { return i < operands_.size() && operands_[i].value != kNoValue; }
  StatusOr<ValueId> Value(size_t i) const {
    if (Has(i)) return operands_[i].value;
    return InvalidArgument("its input {} must be a tensor", i);
  }
  StatusOr<const Sequence*> SequenceAt(size_t i) const {
    if (i < operands_.size() && operands_[i].sequence != nullptr) return operands_[i].sequence;
    return InvalidArgument("its input {} must be a sequence", i);
  }
  // All elements, one by one.
  StatusOr<std::vector<ValueId>> Elements(const Sequence& sequence);
  // The parts of x along the axis.
  StatusOr<std::vector<ValueId>> Parts(ValueId x, int axis, const std::vector<int64_t>& sizes);
  // The entries along the axis of a sequence that is cut from a tensor; nullopt if not known.
  std::optional<int64_t> Entries(const Sequence& sequence) const;
  // The integers in a constant.
  std::optional<std::vector<int64_t>> Known(ValueId id) const;
  // A constant position, among `count` places, counted from the end if negative.
  StatusOr<int64_t> Position(size_t input, int64_t count) const;
  StatusOr<int> AxisOf(ValueId value, int64_t axis, int extra) const;

  const OnnxNode& node_;
  const std::vector<SequenceOperand>& operands_;
  Rewriter& rewriter_;
};

std::optional<std::vector<int64_t>> Resolver::Known(ValueId id) const {
  const Tensor* const value = rewriter_.info(id).value;
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  if (value->dtype() == DType::kInt64) {
    numbers.assign(value->values<int64_t>().begin(), value->values<int64_t>().end());
  } else if (value->dtype() == DType::kInt32) {
    numbers.assign(value->values<int32_t>().begin(), value->values<int32_t>().end());
  } else {
    return std::nullopt;
  }
  return numbers;
}

StatusOr<int64_t> Resolver::Position(size_t input, int64_t count) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId id, Value(input));
  const auto known = Known(id);
  if (!known || known->size() != 1) {
    return Unimplemented(
        "its position is not a constant, and the elements may differ in shape; positions must be "
        "known at load, unless SplitToSequence cuts a tensor into single entries");
  }
  const int64_t position = known->front() < 0 ? known->front() + count : known->front();
  if (position >= 0 && position < count) return position;
  return InvalidArgument("its position is {}, and the sequence has {} places", known->front(),
                         count);
}

StatusOr<int> Resolver::AxisOf(ValueId value, int64_t axis, int extra) const {
  const SymbolicShape shape = rewriter_.info(value).shape;
  if (axis >= 0)
    return NormalizeAxis(axis, shape.has_rank() ? shape.rank() + extra : kMaxGraphRank);
  if (shape.has_rank()) return NormalizeAxis(axis, shape.rank() + extra);
  return Unimplemented("its axis is {}, and the number of dimensions of its input is not known",
                       axis);
}

std::optional<int64_t> Resolver::Entries(const Sequence& sequence) const {
  const SymbolicShape shape = rewriter_.info(sequence.whole).shape;
  if (!shape.has_rank() || sequence.axis >= shape.rank() || !shape[sequence.axis].known()) {
    return std::nullopt;
  }
  return shape[sequence.axis].value();
}

StatusOr<std::vector<ValueId>> Resolver::Elements(const Sequence& sequence) {
  if (sequence.whole == kNoValue) return sequence.elements;
  const std::optional<int64_t> entries = Entries(sequence);
  if (!entries || *entries > kMaxSequenceElements) {
    return Unimplemented(
        "the number of elements of its sequence must be known at load, at most {}: export the "
        "model "
        "with a fixed size of dimension {} before SplitToSequence",
        kMaxSequenceElements, sequence.axis);
  }
  const std::vector<int64_t> ones(static_cast<size_t>(*entries), 1);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<ValueId> elements,
                             Parts(sequence.whole, sequence.axis, ones));
  if (sequence.keeps_axis) return elements;
  const ValueId axes = rewriter_.ConstantInts({{sequence.axis}});
  for (ValueId& element : elements) {
    CHAIRLIFT_ASSIGN_OR_RETURN(element, Add("Squeeze", {element, axes}));
  }
  return elements;
}

StatusOr<std::vector<ValueId>> Resolver::Parts(ValueId x, int axis,
                                               const std::vector<int64_t>& sizes) {
  if (sizes.empty()) return std::vector<ValueId>();
  OnnxNode parts;
  parts.name = node_.name + "/Split";
  parts.op_type = "Split";
  parts.opset = kNewestOpset;
  parts.attributes = Axis(axis);
  parts.inputs = {x, rewriter_.ConstantInts(sizes)};
  for (size_t i = 0; i < sizes.size(); ++i) parts.outputs.push_back(rewriter_.NewValue());
  std::vector<ValueId> elements = parts.outputs;
  CHAIRLIFT_RETURN_IF_ERROR(rewriter_.AddBefore(std::move(parts)));
  return elements;
}

StatusOr<SequenceResult> Resolver::Construct() {
  std::vector<ValueId> elements;
  for (size_t i = 0; i < operands_.size(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(elements.emplace_back(), Value(i));
  }
  return Of(std::move(elements));
}

StatusOr<SequenceResult> Resolver::Split() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId x, Value(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, AxisOf(x, node_.attributes.Int("axis", 0), 0));
  Sequence cut{.elements = {}, .whole = x, .axis = axis};
  if (!Has(1)) {
    cut.keeps_axis = node_.attributes.Int("keepdims", 1) != 0;
    return SequenceResult{.sequence = std::move(cut)};
  }
  const ValueId split = operands_[1].value;
  std::optional<std::vector<int64_t>> sizes = Known(split);
  if (!sizes) {
    return Unimplemented("the sizes of its elements (input 1) must be constants");
  }
  const SymbolicShape split_shape = rewriter_.info(split).shape;
  if (split_shape.has_rank() && split_shape.rank() == 0) {
    const int64_t size = sizes->front();
    if (size < 1) return InvalidArgument("the size of its elements is {}, not above 0", size);
    if (size == 1) return SequenceResult{.sequence = std::move(cut)};
    const std::optional<int64_t> entries = Entries(cut);
    if (!entries) {
      return Unimplemented(
          "the size of dimension {} of its input must be known to cut it into elements of {}: "
          "export "
          "the model with a fixed size, or give the size of each element",
          axis, size);
    }
    // Not rounded up by adding: the size may be any number.
    const int64_t count = *entries / size + (*entries % size != 0 ? 1 : 0);
    if (count > kMaxSequenceElements) {
      return Unimplemented("it cuts its input into {} elements, more than the limit of {}", count,
                           kMaxSequenceElements);
    }
    sizes->assign(static_cast<size_t>(count), size);
    if (count > 0) sizes->back() = *entries - (count - 1) * size;
  }
  if (std::ssize(*sizes) > kMaxSequenceElements) {
    return Unimplemented("it cuts its input into {} elements, more than the limit of {}",
                         sizes->size(), kMaxSequenceElements);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<ValueId> elements, Parts(x, axis, *sizes));
  return Of(std::move(elements));
}

StatusOr<SequenceResult> Resolver::At() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Sequence* const sequence, SequenceAt(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(ValueId place, Value(1));
  if (sequence->whole == kNoValue) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t i, Position(1, std::ssize(sequence->elements)));
    return SequenceResult{.value = sequence->elements[static_cast<size_t>(i)]};
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      place, Add("Reshape",
                 {place, rewriter_.ConstantInts(sequence->keeps_axis ? std::vector<int64_t>{1}
                                                                     : std::vector<int64_t>{})}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId taken,
                             Add("Gather", {sequence->whole, place}, Axis(sequence->axis)));
  return SequenceResult{.value = taken};
}

StatusOr<SequenceResult> Resolver::Insert() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Sequence* const sequence, SequenceAt(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId value, Value(1));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<ValueId> elements, Elements(*sequence));
  int64_t place = std::ssize(elements);
  if (place == kMaxSequenceElements) {
    return Unimplemented("its sequence has more than {} elements", kMaxSequenceElements);
  }
  if (Has(2)) {  // -1 is before the last element
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId id, Value(2));
    const auto known = Known(id);
    const bool end = known && known->size() == 1 && known->front() == place;
    if (!end) {
      CHAIRLIFT_ASSIGN_OR_RETURN(place, Position(2, place));
    }
  }
  elements.insert(elements.begin() + place, value);
  return Of(std::move(elements));
}

StatusOr<SequenceResult> Resolver::Erase() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Sequence* const sequence, SequenceAt(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<ValueId> elements, Elements(*sequence));
  int64_t place = std::ssize(elements) - 1;
  if (Has(1)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(place, Position(1, std::ssize(elements)));
  }
  if (elements.empty()) return InvalidArgument("its sequence is empty");
  elements.erase(elements.begin() + place);
  return Of(std::move(elements));
}

StatusOr<SequenceResult> Resolver::Length() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Sequence* const sequence, SequenceAt(0));
  if (sequence->whole == kNoValue) {
    return SequenceResult{.value =
                              rewriter_.ConstantScalar<int64_t>(std::ssize(sequence->elements))};
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId shape, Add("Shape", {sequence->whole}));
  const ValueId axis = rewriter_.ConstantScalar<int64_t>(sequence->axis);
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId length, Add("Gather", {shape, axis}, Axis(0)));
  return SequenceResult{.value = length};
}

StatusOr<SequenceResult> Resolver::Concat() {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Sequence* const sequence, SequenceAt(0));
  if (!node_.attributes.Has("axis")) return InvalidArgument("its attribute 'axis' is missing");
  const int64_t given = node_.attributes.Int("axis", 0);
  const bool stacks = node_.attributes.Int("new_axis", 0) != 0;
  // The tensor again, for any number of entries, perhaps with its axis elsewhere.
  if (sequence->whole != kNoValue && sequence->keeps_axis != stacks) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, AxisOf(sequence->whole, given, 0));
    if (axis == sequence->axis) return SequenceResult{.value = sequence->whole};
    const SymbolicShape shape = rewriter_.info(sequence->whole).shape;
    if (stacks && shape.has_rank()) {
      std::vector<int64_t> perm(static_cast<size_t>(shape.rank()));
      std::iota(perm.begin(), perm.end(), int64_t{0});
      perm.erase(perm.begin() + sequence->axis);
      perm.insert(perm.begin() + axis, sequence->axis);
      Attributes order;
      order.Set("perm", std::move(perm));
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId moved,
                                 Add("Transpose", {sequence->whole}, std::move(order)));
      return SequenceResult{.value = moved};
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<ValueId> elements, Elements(*sequence));
  if (elements.empty()) return InvalidArgument("its sequence is empty");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, AxisOf(elements[0], given, stacks ? 1 : 0));
  if (stacks) {
    const ValueId axes = rewriter_.ConstantInts({{axis}});
    for (ValueId& element : elements) {
      CHAIRLIFT_ASSIGN_OR_RETURN(element, Add("Unsqueeze", {element, axes}));
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId joined, Add("Concat", std::move(elements), Axis(axis)));
  return SequenceResult{.value = joined};
}

struct SequenceOperator {
  std::string_view name;
  size_t min_inputs, max_inputs;
  StatusOr<SequenceResult> (Resolver::*resolve)();
};
constexpr size_t kAny = size_t{1} << 20;
constexpr SequenceOperator kSequenceOperators[] = {
    {"ConcatFromSequence", 1, 1, &Resolver::Concat},
    {"SequenceAt", 2, 2, &Resolver::At},
    {"SequenceConstruct", 1, kAny, &Resolver::Construct},
    {"SequenceEmpty", 0, 0, &Resolver::Empty},
    {"SequenceErase", 1, 2, &Resolver::Erase},
    {"SequenceInsert", 2, 3, &Resolver::Insert},
    {"SequenceLength", 1, 1, &Resolver::Length},
    {"SplitToSequence", 1, 2, &Resolver::Split},
};

const SequenceOperator* Find(const OnnxNode& node) {
  if (!node.domain.empty()) return nullptr;
  const auto* const found =
      std::find_if(std::begin(kSequenceOperators), std::end(kSequenceOperators),
                   [&](const SequenceOperator& one) { return one.name == node.op_type; });
  return found == std::end(kSequenceOperators) ? nullptr : found;
}

}  // namespace

bool IsSequenceOperator(const OnnxNode& node) { return Find(node) != nullptr; }

std::vector<std::string_view> SequenceOperators() {
  std::vector<std::string_view> names;
  for (const SequenceOperator& one : kSequenceOperators) names.push_back(one.name);
  return names;
}

StatusOr<SequenceResult> ResolveSequence(const OnnxNode& node,
                                         const std::vector<SequenceOperand>& operands,
                                         Rewriter& rewriter) {
  const SequenceOperator* const found = Find(node);
  if (operands.size() < found->min_inputs || operands.size() > found->max_inputs) {
    return InvalidArgument("it has {} inputs; it takes {} to {}", operands.size(),
                           found->min_inputs, found->max_inputs);
  }
  if (std::ssize(operands) > kMaxSequenceElements) {
    return Unimplemented("its sequence has {} elements, more than the limit of {}", operands.size(),
                         kMaxSequenceElements);
  }
  Resolver resolver(node, operands, rewriter);
  return (resolver.*found->resolve)();
}

}  // namespace chairlift
