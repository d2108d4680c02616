#include "graph/decoders/known_values.h"

#include <algorithm>
#include <utility>

#include "graph/passes/rewrite.h"

namespace chairlift::decoders {

ValueId KnownValues::Emit(const std::string& op, std::vector<ValueId> inputs,
                          Attributes attributes) {
  return AddNode(graph_, fmt::format("known/{}", graph_.values.size()), op, std::move(inputs),
                 std::move(attributes));
}
ValueId KnownValues::Integers(const std::vector<int64_t>& values) {
  return AddIntegers(graph_, fmt::format("known/{}", graph_.values.size()), values);
}
// [1]: an entry of the input's shape.
ValueId KnownValues::SizeOfInput(int axis) {
  Attributes range;
  range.Set("start", int64_t{axis});
  range.Set("end", int64_t{axis} + 1);
  return Emit("Shape", {input_}, range);
}

StatusOr<ValueId> KnownValues::Canonical(ValueId id) {
  const Value value = graph_.values[static_cast<size_t>(id)];
  if (value.is_constant() || !reader_.of(id).known() || reader_.of(id).is_slopes()) return id;
  if (const auto found = canonical_.find(id); found != canonical_.end()) return found->second;
  StatusOr<ValueId> made = MakeCanonical(value, reader_.of(id));
  if (!made.ok()) {
    return Unimplemented("its input '{}' {}", value.name, Message(made.status()));
  }
  canonical_[id] = *made;
  return made;
}

StatusOr<ValueId> KnownValues::MakeCanonical(const Value& value, const Pattern& pattern) {
  if (pattern.is_line() && !pattern.line.axes().empty()) return Positions(value.dtype, pattern);
  if (pattern.is_table() && pattern.conditions.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId shape, Sizes(pattern.dims));
    return Emit("ConstantOfShape", {shape}, Attribute("value", pattern.table));
  }
  const auto elements = pattern.Elements();
  if (!elements) return Unimplemented("depends on places or on how many tokens came before");
  CHAIRLIFT_ASSIGN_OR_RETURN(ValueId sizes, Sizes(*elements));
  if (pattern.rank() == 0) sizes = Emit("Squeeze", {sizes, Integers({0})});
  return AsType(sizes, value.dtype);
}

StatusOr<ValueId> KnownValues::AsType(ValueId id, DType dtype) {
  if (dtype == DType::kInt64) return id;
  Attributes to;
  if (dtype != DType::kInt32 && dtype != DType::kFloat) {
    return Unimplemented("is {}", DTypeName(dtype));
  }
  to.Set("to", int64_t{dtype == DType::kInt32 ? 6 : 1});
  return Emit("Cast", {id}, to);
}

// A list of numbers, batch sizes and lengths.
StatusOr<ValueId> KnownValues::Sizes(const std::vector<Line>& elements) {
  std::vector<ValueId> parts;
  for (const Line& element : elements) {
    if (element.is_number()) {
      parts.push_back(Integers({element.number}));
      continue;
    }
    const int axis = element.of(Size::kBatch) != 0 ? 0 : 1;
    const char* const size = axis == 0 ? Size::kBatch : length_;
    const int64_t times = element.of(size);
    const auto own = Line::Product(Line::Of(size), Line::Number(times));
    if (!own || element != *own) {
      return Unimplemented("depends on how many tokens came before ({})", element.ToString());
    }
    ValueId part = SizeOfInput(axis);
    if (times != 1) part = Emit("Mul", {part, Integers({times})});
    parts.push_back(part);
  }
  if (parts.size() == 1) return parts[0];
  return Emit("Concat", parts, Attribute("axis", int64_t{0}));
}

// A token's position plus a constant, along an axis with one entry per token. Without a past it is
// the index.
StatusOr<ValueId> KnownValues::Positions(DType dtype, const Pattern& pattern) {
  const int axis = pattern.line.axes()[0];
  const auto more = Line::Sum(pattern.line, position_(axis), -1);
  bool fits = more && more->is_number();
  for (int i = 0; i < pattern.rank(); ++i) {
    const Line& dim = pattern.dims[static_cast<size_t>(i)];
    fits &= i == axis ? dim == Line::Of(length_) : dim == Line::Number(1) || dim == Line::Batch();
  }
  if (!fits) {
    return Unimplemented("is {} where a token's position is {}", pattern.line.ToString(),
                         position_(axis).ToString());
  }
  const ValueId length = Emit("Squeeze", {SizeOfInput(1), Integers({0})});
  const auto scalar = [&](int64_t n) { return Emit("Squeeze", {Integers({n}), Integers({0})}); };
  ValueId places = Emit("Range", {scalar(0), length, scalar(1)});
  if (more->number != 0) places = Emit("Add", {places, Integers({more->number})});
  std::vector<int64_t> others;
  for (int i = 0; i < pattern.rank(); ++i) {
    if (i != axis) others.push_back(i);
  }
  if (!others.empty()) places = Emit("Unsqueeze", {places, Integers(others)});
  // Sizes that the model computes from the value are those of the whole batch.
  if (std::find(pattern.dims.begin(), pattern.dims.end(), Line::Batch()) != pattern.dims.end()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId shape, Sizes(pattern.dims));
    places = Emit("Expand", {places, shape});
  }
  return AsType(places, dtype);
}

}  // namespace chairlift::decoders
