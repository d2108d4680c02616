// Finds values that are only added to the scores of a softmax, or that replace them.
#include "graph/additive_masks.h"

#include <algorithm>
#include <cmath>

#include "ops/half_simd.h"
#include "ops/input_values.h"

namespace chairlift {
namespace {

bool IsOneOf(const Node& node, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return Is(node, name); });
}

// For a floating-point tensor.
bool AllWhole(const Tensor& t) {
  std::vector<float> wide(static_cast<size_t>(t.size()));
  if (t.dtype() == DType::kFloat16) {
    WidenFloat16(t.data<Float16>(), wide.data(), t.size());
  } else if (t.dtype() == DType::kFloat) {
    std::copy_n(t.data<float>(), t.size(), wide.begin());
  } else {
    return false;
  }
  return std::all_of(wide.begin(), wide.end(), [](float v) { return v == std::trunc(v); });
}

// Longer chains than masks have are not followed.
constexpr int kMaxSteps = 100;

bool IsIntegerType(DType dtype) { return dtype == DType::kBool || kIndexTypes.Contains(dtype); }

}  // namespace

bool AdditiveMasks::IsMask(ValueId id, int depth) {
  if (depth == kMaxSteps) return false;
  const auto [it, fresh] = masks_.try_emplace(id, false);
  if (!fresh) return it->second;
  bool mask = !links_.is_output(id) && !links_.readers(id).empty();
  for (const int reader : links_.readers(id)) {
    const Node& node = graph_.nodes[reader];
    for (size_t i = 0; mask && i < node.inputs.size(); ++i) {
      if (node.inputs[i] == id) mask = MasksThrough(node, i, depth);
    }
  }
  return masks_[id] = mask;
}

// Whether input i of the node is only used as a mask, given that it is one as far as this node.
bool AdditiveMasks::MasksThrough(const Node& node, size_t input, int depth) {
  constexpr size_t kMaskOfAttention = 3;
  if (Is(node, "Softmax")) return true;
  if (Is(node, "Attention")) return input == kMaskOfAttention;
  if (!Subgraphs(node).empty()) return MasksInBodies(node, input, depth);
  const bool is_float = kFloatTypes.Contains(graph_.values[node.outputs[0]].dtype);
  bool passes = false;
  if (IsOneOf(node, {"Add", "Sub", "Sum", "Max", "Min", "Neg", "Clip", "Concat"})) {
    passes = true;
  } else if (Is(node, "Where")) {
    passes = input > 0;
  } else if (Is(node, "Mul")) {
    const ValueId other = node.inputs[1 - input];
    passes = other != node.inputs[input] && (IsWhole(other, depth) || Scales(other));
  } else if (Is(node, "Div")) {
    passes = input == 0 && Scales(node.inputs[1]);
  } else if (node.def->OnlyMoves() || IsOneOf(node, {"Trilu", "Cast", "CastLike"})) {
    passes = input == 0 && is_float;
  } else if (IsOneOf(node, {"ScatterND", "ScatterElements"})) {
    passes = input != 1 && node.attributes.String("reduction", "none") == "none";
  }
  if (!passes) return false;
  return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
    return output == kNoValue || IsMask(output, depth + 1);
  });
}

bool AdditiveMasks::MasksInBodies(const Node& node, size_t input, int depth) {
  const auto bodies = Subgraphs(node);
  size_t first = node.inputs.size();
  for (const auto& [name, body] : bodies) first -= static_cast<size_t>(body->num_captures);
  for (const auto& [name, body] : bodies) {
    const size_t captures = static_cast<size_t>(body->num_captures);
    if (input >= first && input < first + captures) {
      const auto formal = static_cast<size_t>(body->num_formal_inputs());
      std::unique_ptr<AdditiveMasks>& inside = bodies_[body.get()];
      if (inside == nullptr) inside = std::make_unique<AdditiveMasks>(*body);
      return inside->IsMask(body->inputs[formal + input - first], depth + 1);
    }
    first += captures;
  }
  return false;
}

// Whether its elements are whole numbers. Multiplied by a whole number of at least 1, a mask hides
// as before; multiplied by 0, it hides nothing.
bool AdditiveMasks::IsWhole(ValueId id, int depth) {
  if (depth == kMaxSteps) return false;
  const auto [it, fresh] = whole_.try_emplace(id, false);
  if (!fresh) return it->second;
  const bool whole = ComputesWhole(id, depth);
  return whole_[id] = whole;
}

bool AdditiveMasks::ComputesWhole(ValueId id, int depth) {
  const Value& value = graph_.values[id];
  if (IsIntegerType(value.dtype)) return true;
  if (value.is_constant()) return AllWhole(value.constant);
  const int producer = links_.producer(id);
  if (producer < 0) return false;
  const Node& node = graph_.nodes[producer];
  const auto whole = [&](ValueId each) { return IsWhole(each, depth + 1); };
  if (IsOneOf(node, {"Add", "Sub", "Mul", "Concat"})) {
    return std::all_of(node.inputs.begin(), node.inputs.end(), whole);
  }
  if (IsOneOf(node, {"Cast", "CastLike", "Neg", "Trilu"}) || node.def->OnlyMoves()) {
    return whole(node.inputs[0]);
  }
  if (Is(node, "Where")) return whole(node.inputs[1]) && whole(node.inputs[2]);
  if (Is(node, "ConstantOfShape")) {
    const Tensor* fill = node.attributes.Find<Tensor>("value");
    return fill == nullptr || AllWhole(*fill);
  }
  return false;
}

// Whether it is a scale of scores: neither so small that a mask hides no more nor so large that it
// overflows.
bool AdditiveMasks::Scales(ValueId id) const {
  constexpr double kLeast = 1.0 / 64, kMost = 64;
  const Value& value = graph_.values[id];
  const auto scalar = value.is_constant() ? ScalarValue(value.constant) : std::nullopt;
  return scalar && std::abs(*scalar) >= kLeast && std::abs(*scalar) <= kMost;
}

}  // namespace chairlift
