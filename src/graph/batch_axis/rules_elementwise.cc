// Operators that work on elements one by one, with broadcasting; and integer arithmetic on sizes.
#include <algorithm>
#include <utility>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

// Rows keep apart where all operands that carry them do so along the same axis of the result, and
// no other operand has a size there.
Status Broadcast(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.OutputRank(0));
  const State* rows = nullptr;
  int from_right = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const State& state = c.in(i);
    if (state.sizes()) return Unimplemented("it computes with the batch size");
    if (!state.rows()) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int input_rank, c.Rank(i));
    if (rows == nullptr) {
      rows = &state;
      from_right = input_rank - state.axis;
    } else if (from_right != input_rank - state.axis || !rows->SameRows(state)) {
      return Unimplemented("its inputs have the batch along different dimensions");
    }
  }
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.has(i) || c.in(i).rows()) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(i));
    const int axis = static_cast<int>(dims.size()) - from_right;
    if (axis >= 0 && !dims[axis].is_one()) {
      return Unimplemented("its input {} has {} entries along the batch, whatever the batch size",
                           i, dims[axis].ToString());
    }
  }
  c.SetAll(rows->At(rank - from_right));
  return absl::OkStatus();
}

// One result element of size arithmetic; nothing where it cannot be told.
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

// The i-th element of operands of which one may be a single number for all.
const Extent& ElementAt(const std::vector<Extent>& elements, size_t i) {
  return elements.size() == 1 ? elements[0] : elements[i];
}

Status SizeArithmetic(Context& c, Arithmetic arithmetic) {
  const std::vector<Extent>* a = c.Elements(0);
  const std::vector<Extent>* b = c.Elements(1);
  if (a == nullptr || b == nullptr) return Unimplemented("it computes with the batch size");
  const size_t n = std::max(a->size(), b->size());
  if ((a->size() != n && a->size() != 1) || (b->size() != n && b->size() != 1)) {
    return Unimplemented("it computes with the batch size");
  }
  std::vector<Extent> result;
  for (size_t i = 0; i < n; ++i) {
    std::optional<Extent> element = arithmetic(ElementAt(*a, i), ElementAt(*b, i));
    if (!element) return Unimplemented("it computes with the batch size");
    result.push_back(*std::move(element));
  }
  c.SetAll(State::Of(std::move(result)));
  return absl::OkStatus();
}

bool AnyRows(const Context& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.in(i).rows()) return true;
  }
  return false;
}

template <Arithmetic kArithmetic>
Status Binary(Context& c) {
  return AnyRows(c) ? Broadcast(c) : SizeArithmetic(c, kArithmetic);
}

Status Where(Context& c) {
  if (AnyRows(c)) return Broadcast(c);
  const std::vector<Extent>* condition = c.Elements(0);
  const std::vector<Extent>* a = c.Elements(1);
  const std::vector<Extent>* b = c.Elements(2);
  if (condition == nullptr || a == nullptr || b == nullptr) {
    return Unimplemented("it computes with the batch size");
  }
  const size_t n = std::max({condition->size(), a->size(), b->size()});
  std::vector<Extent> result;
  for (const auto* operand : {condition, a, b}) {
    if (operand->size() != n && operand->size() != 1) {
      return Unimplemented("it computes with the batch size");
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const Extent& chosen = ElementAt(*condition, i);
    if (!chosen.is_number()) return Unimplemented("it computes with the batch size");
    result.push_back(ElementAt(chosen.number() != 0 ? *a : *b, i));
  }
  c.SetAll(State::Of(std::move(result)));
  return absl::OkStatus();
}

Status Dropout(Context& c) {
  if (c.has(2)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const bool training, c.Flag(2));
    if (training) return Unimplemented("it is in training mode");
  }
  if (!c.in(0).rows()) return Unimplemented("it computes with the batch size");
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

// Cast and Identity keep sizes.
Status Same(Context& c) {
  if (c.in(0).rows()) return Broadcast(c);
  const ValueId output = c.node().outputs[0];
  const DType dtype = output == kNoValue ? DType::kUndefined : c.graph().values[output].dtype;
  if (dtype != DType::kInt64 && dtype != DType::kInt32) {
    return Unimplemented("it computes with the batch size");
  }
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

// Scales, zero points and the like are shared; they lie along one axis, which is no matter for rows
// unless it is the batch.
Status Quantize(Context& c) {
  if (!c.in(0).rows() || !c.SharedFrom(1)) {
    return Unimplemented("its scale depends on the rows");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int scale_rank, c.Rank(1));
  if (scale_rank > 1) return Unimplemented("its scales come in blocks");
  if (scale_rank == 1) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.Axis(c.attributes().Int("axis", 1), rank));
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> scale, c.Dims(1));
    if (axis == c.in(0).axis && !scale[0].is_one()) return MixesRows();
  }
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

// Those that compute with the values of elements only, and take no sizes.
constexpr std::string_view kElementwise[] = {
    "Abs",
    "Acos",
    "Acosh",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Xor",
};

}  // namespace

std::span<const std::string_view> ElementwiseOperators() { return kElementwise; }

void AddElementwiseRules(RuleTable& rules) {
  for (const std::string_view op : kElementwise) rules[std::string(op)] = Broadcast;
  rules["Add"] = Binary<AddSizes>;
  rules["Sub"] = Binary<SubtractSizes>;
  rules["Mul"] = Binary<MultiplySizes>;
  rules["Div"] = Binary<DivideSizes>;
  rules["Equal"] = Binary<EqualSizes>;
  rules["Dropout"] = Dropout;
  rules["Where"] = Where;
  rules["Cast"] = Same;
  rules["Identity"] = Same;
  rules["QuantizeLinear"] = Quantize;
  rules["DequantizeLinear"] = Quantize;
}

}  // namespace chairlift::batch_axis
