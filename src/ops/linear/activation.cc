#include "ops/linear/activation.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace chairlift {
namespace {

struct NamedKind {
  const char* name;
  ActivationKind kind;
};
constexpr NamedKind kKinds[] = {
    {"", ActivationKind::kNone},
    {"Relu", ActivationKind::kRelu},
    {"LeakyRelu", ActivationKind::kLeakyRelu},
    {"Clip", ActivationKind::kClip},
    {"Sigmoid", ActivationKind::kSigmoid},
    {"Tanh", ActivationKind::kTanh},
    {"HardSigmoid", ActivationKind::kHardSigmoid},
    {"HardSwish", ActivationKind::kHardSwish},
    {"Silu", ActivationKind::kSilu},
    {"Elu", ActivationKind::kElu},
    {"Gelu", ActivationKind::kGelu},
    {"GeluTanh", ActivationKind::kGeluTanh},
};

}  // namespace

StatusOr<Activation> Activation::Parse(const Attributes& attributes) {
  const std::string name = attributes.String("activation", "");
  for (const NamedKind& known : kKinds) {
    if (name != known.name) continue;
    return Activation{known.kind, attributes.Float("activation_alpha", 0),
                      attributes.Float("activation_beta", 0)};
  }
  return InvalidArgument("unknown activation '{}'", name);
}

double Activate(const Activation& activation, double x) {
  const double alpha = activation.alpha;
  const double beta = activation.beta;
  switch (activation.kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case ActivationKind::kClip:
      return std::min(std::max(x, alpha), beta);
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kTanh:
      return std::tanh(x);
    case ActivationKind::kHardSigmoid:
      return std::clamp(alpha * x + beta, 0.0, 1.0);
    case ActivationKind::kHardSwish:
      return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case ActivationKind::kGelu:
      return x * 0.5 * (1 + std::erf(x * std::sqrt(0.5)));
    case ActivationKind::kGeluTanh:
      return x * 0.5 * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }
  return x;
}

}  // namespace chairlift
