// Integer arithmetic on sizes, element by element.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

Status ComputesWithBatch() { return Unimplemented("it computes with the batch size"); }

// One result element of size arithmetic; nothing if unknown.
using Arithmetic = std::optional<Extent> (*)(const Extent&, const Extent&);

std::optional<Extent> AddSizes(const Extent& a, const Extent& b) {
  if (a == Extent::Number(0)) return b;
  if (b == Extent::Number(0)) return a;
  int64_t sum = 0;
  if (!a.is_number() || !b.is_number() || __builtin_add_overflow(a.number(), b.number(), &sum)) {
    return std::nullopt;
  }
  return Extent::Number(sum);
}
std::optional<Extent> SubtractSizes(const Extent& a, const Extent& b) {
  if (a == b) return Extent::Number(0);
  if (b == Extent::Number(0)) return a;
  int64_t difference = 0;
  if (!a.is_number() || !b.is_number() ||
      __builtin_sub_overflow(a.number(), b.number(), &difference)) {
    return std::nullopt;
  }
  return Extent::Number(difference);
}
std::optional<Extent> MultiplySizes(const Extent& a, const Extent& b) {
  return Extent::Product(a, b);
}
std::optional<Extent> DivideSizes(const Extent& a, const Extent& b) {
  if (a.is_number() && b.is_number()) {
    if (b.number() <= 0) return std::nullopt;
    return Extent::Number(a.number() / b.number());
  }
  return Extent::Quotient(a, b);
}
std::optional<Extent> EqualSizes(const Extent& a, const Extent& b) {
  if (a == b) return Extent::Number(1);
  if (a.is_number() && b.is_number()) return Extent::Number(0);
  // Dimensions are never negative, and neither are positive multiples of them.
  const auto negative = [](const Extent& e) { return e.is_number() && e.number() < 0; };
  if ((negative(a) && b.number() > 0) || (negative(b) && a.number() > 0)) return Extent::Number(0);
  return std::nullopt;
}

// Element i of an operand; a single number stands for all elements.
const Extent& ElementAt(const std::vector<Extent>& elements, size_t i) {
  return elements.size() == 1 ? elements[0] : elements[i];
}

template <Arithmetic arithmetic>
Status BinarySizes(Context& c) {
  const std::vector<Extent>* a = c.Elements(0);
  const std::vector<Extent>* b = c.Elements(1);
  if (a == nullptr || b == nullptr) return ComputesWithBatch();
  const size_t n = std::max(a->size(), b->size());
  if ((a->size() != n && a->size() != 1) || (b->size() != n && b->size() != 1)) {
    return ComputesWithBatch();
  }
  std::vector<Extent> result;
  for (size_t i = 0; i < n; ++i) {
    std::optional<Extent> element = arithmetic(ElementAt(*a, i), ElementAt(*b, i));
    if (!element) return ComputesWithBatch();
    result.push_back(*std::move(element));
  }
  c.SetAll(State::Of(std::move(result)));
  return absl::OkStatus();
}

Status WhereSizes(Context& c) {
  const std::vector<Extent>* condition = c.Elements(0);
  const std::vector<Extent>* a = c.Elements(1);
  const std::vector<Extent>* b = c.Elements(2);
  if (condition == nullptr || a == nullptr || b == nullptr) {
    return ComputesWithBatch();
  }
  const size_t n = std::max({condition->size(), a->size(), b->size()});
  std::vector<Extent> result;
  for (const auto* operand : {condition, a, b}) {
    if (operand->size() != n && operand->size() != 1) {
      return ComputesWithBatch();
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const Extent& chosen = ElementAt(*condition, i);
    if (!chosen.is_number()) return ComputesWithBatch();
    result.push_back(ElementAt(chosen.number() != 0 ? *a : *b, i));
  }
  c.SetAll(State::Of(std::move(result)));
  return absl::OkStatus();
}

// The elements of input i, of rank 1. Unknown ones get new symbols: they may be any integers, but
// depend neither on a row nor on the batch size.
StatusOr<std::vector<Extent>> Integers(const Context& c, int i) {
  constexpr int64_t kMaxRank = 64;
  const SymbolicShape& shape = c.graph().values[c.id(i)].shape;
  if (shape.has_rank() && shape.rank() == 1) {
    if (c.Elements(i) != nullptr) return *c.Elements(i);
    if (c.in(i).shared() && shape[0].known() && shape[0].value() <= kMaxRank) {
      std::vector<Extent> elements;
      for (int64_t e = 0; e < shape[0].value(); ++e) {
        elements.push_back(Extent::Symbol(fmt::format("?{}[{}]", c.id(i), e)));
      }
      return elements;
    }
  }
  return ComputesWithBatch();
}

Status ConcatSizes(Context& c) {
  std::vector<Extent> joined;
  for (int i = 0; i < c.num_inputs(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> elements, Integers(c, i));
    joined.insert(joined.end(), elements.begin(), elements.end());
  }
  c.Set(0, State::Of(std::move(joined)));
  return absl::OkStatus();
}

Status SliceSizes(Context& c) {
  if (c.Elements(0) == nullptr) return ComputesWithBatch();
  const std::vector<Extent>& elements = *c.Elements(0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> starts, c.Numbers(1));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, c.Numbers(2));
  int64_t step = 1;
  if (c.has(4)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, c.Numbers(4));
    if (steps.size() != 1) return ComputesWithBatch();
    step = steps[0];
  }
  if (starts.size() != 1 || ends.size() != 1 || step < 1) {
    return ComputesWithBatch();
  }
  const auto size = static_cast<int64_t>(elements.size());
  const auto clamp = [size](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? std::max<int64_t>(i, -size) + size : i, 0, size);
  };
  std::vector<Extent> part;
  for (int64_t i = clamp(starts[0]); i < clamp(ends[0]); i += std::min(step, size)) {
    part.push_back(elements[static_cast<size_t>(i)]);
  }
  c.Set(0, State::Of(std::move(part)));
  return absl::OkStatus();
}

Status GatherSizes(Context& c) {
  if (c.Elements(0) == nullptr) return ComputesWithBatch();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, c.Numbers(1));
  const std::vector<Extent>& elements = *c.Elements(0);
  std::vector<Extent> picked;
  for (int64_t index : indices) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int at, c.Axis(index, static_cast<int>(elements.size())));
    picked.push_back(elements[static_cast<size_t>(at)]);
  }
  c.Set(0, State::Of(std::move(picked)));
  return absl::OkStatus();
}

// The same elements, converted between rank 0 and 1.
Status KeepSizes(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.OutputRank(0));
  if (rank > 1) return ComputesWithBatch();
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

Status CastSizes(Context& c) {
  const ValueId output = c.node().outputs[0];
  const DType dtype = output == kNoValue ? DType::kUndefined : c.graph().values[output].dtype;
  if (dtype != DType::kInt64 && dtype != DType::kInt32) return ComputesWithBatch();
  return KeepSizes(c);
}

// An integer constant of known length; exporters compare shapes with such constants.
Status KnownConstant(Context& c) {
  if (!c.in(0).shared()) return ComputesWithBatch();
  const std::vector<Extent>& shape = *c.Elements(0);
  const auto* value = c.attributes().Find<Tensor>("value");
  constexpr int64_t kMaxRank = 64;
  if (shape.size() != 1 || !shape[0].is_number() || shape[0].number() < 0 ||
      shape[0].number() > kMaxRank || value == nullptr || value->dtype() != DType::kInt64 ||
      value->size() != 1) {
    return absl::OkStatus();  // shared; nothing else is known
  }
  c.Set(0, State::Of(std::vector<Extent>(static_cast<size_t>(shape[0].number()),
                                         Extent::Number(value->values<int64_t>()[0]))));
  return absl::OkStatus();
}

}  // namespace

const RuleTable& SizeRules() {
  static const RuleTable* const kRules = new RuleTable{
      {"Add", BinarySizes<AddSizes>},
      {"Cast", CastSizes},
      {"Concat", ConcatSizes},
      {"ConstantOfShape", KnownConstant},
      {"Div", BinarySizes<DivideSizes>},
      {"Equal", BinarySizes<EqualSizes>},
      {"Gather", GatherSizes},
      {"Identity", KeepSizes},
      {"Mul", BinarySizes<MultiplySizes>},
      {"Reshape", KeepSizes},
      {"Slice", SliceSizes},
      {"Squeeze", KeepSizes},
      {"Sub", BinarySizes<SubtractSizes>},
      {"Unsqueeze", KeepSizes},
      {"Where", WhereSizes},
  };
  return *kRules;
}

}  // namespace chairlift::batch_axis
