// Rules for activations, alone and as parts of fused operators.
#include <algorithm>
#include <array>
#include <span>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// The activation of a fused operator, and the attributes of its parameters.
struct FusedActivation {
  std::string_view name;
  std::array<const char*, 2> parameters;
};
constexpr FusedActivation kActivations[] = {
    {"Elu", {"alpha", nullptr}},
    {"HardSigmoid", {"alpha", "beta"}},
    {"LeakyRelu", {"alpha", nullptr}},
    {"Relu", {nullptr, nullptr}},
    {"Sigmoid", {nullptr, nullptr}},
    {"Softplus", {nullptr, nullptr}},
    {"Softsign", {nullptr, nullptr}},
    {"Tanh", {nullptr, nullptr}},
    {"ThresholdedRelu", {"alpha", nullptr}},
};

Attributes Tanh() { return With({{"approximate", std::string("tanh")}}); }

}  // namespace

ValueId Activate(Maker& make, ValueId id, const std::string& name,
                 const std::vector<float>& parameters) {
  if (name.empty()) return id;
  if (name == "Clip") {
    if (parameters.size() != 2) {
      make.Fail(InvalidArgument("activation Clip takes 2 parameters, not {}", parameters.size()));
      return kNoValue;
    }
    return make.Make("Clip",
                     {id, make.ScalarLike(id, parameters[0]), make.ScalarLike(id, parameters[1])});
  }
  const auto* const found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                         [&](const FusedActivation& a) { return a.name == name; });
  if (found == std::end(kActivations)) {
    make.Fail(Unimplemented("activation '{}' is not supported", name));
    return kNoValue;
  }
  Attributes attributes;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i >= found->parameters.size() || found->parameters[i] == nullptr) {
      make.Fail(
          InvalidArgument("activation {} does not take {} parameters", name, parameters.size()));
      return kNoValue;
    }
    attributes.Set(found->parameters[i], parameters[i]);
  }
  return make.Make(name, {id}, std::move(attributes));
}

// input + bias + skip
Status BiasAdd(Maker& make) {
  return make.Become("Add", {make.Make("Add", {make.in(0), make.in(1)}), make.in(2)});
}

Status BiasGelu(Maker& make) {
  return make.Become("Gelu", {make.Make("Add", {make.in(0), make.in(1)})});
}

// The left half of input + bias times the Gelu of the right half.
Status BiasSplitGelu(Maker& make) {
  const ValueId sum = make.Make("Add", {make.in(0), make.in(1)});
  const std::vector<ValueId> halves = make.MakeSeveral(
      "Split", {sum}, 2, With({{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}}));
  return make.Become("Mul", {halves[0], make.Make("Gelu", {halves[1]})});
}

Status FastGelu(Maker& make) {
  const ValueId x = make.has(1) ? make.Make("Add", {make.in(0), make.in(1)}) : make.in(0);
  return make.Become("Gelu", {x}, Tanh());
}

Status Gelu(Maker& make) { return make.Become("Gelu", {make.in(0)}); }

// x · σ(alpha · x)
Status QuickGelu(Maker& make) {
  const ValueId x = make.in(0);
  const float alpha = make.attributes().Float("alpha", 1.702f);
  const ValueId scaled = alpha == 1.0f ? x : make.Make("Mul", {x, make.ScalarLike(x, alpha)});
  return make.Become("Mul", {x, make.Make("Sigmoid", {scaled})});
}

}  // namespace chairlift::contrib
