// The activation at the end of a fused convolution or matrix product.
#ifndef CHAIRLIFT_OPS_LINEAR_ACTIVATION_H_
#define CHAIRLIFT_OPS_LINEAR_ACTIVATION_H_

#include <cstdint>

#include "base/status.h"
#include "ops/attributes.h"

namespace chairlift {

// y = f(x); α and β as in ONNX's operators of the same names.
enum class ActivationKind : uint8_t {
  kNone,
  kRelu,
  kLeakyRelu,    // x < 0 ? αx : x
  kClip,         // min(max(x, α), β)
  kSigmoid,      // 1 / (1 + e⁻ˣ)
  kTanh,         //
  kHardSigmoid,  // clip(αx + β, 0, 1)
  kHardSwish,    // x · clip(x/6 + 1/2, 0, 1)
  kSilu,         // x · sigmoid(x)
  kElu,          // x < 0 ? α(eˣ − 1) : x
  kGelu,         // x/2 · (1 + erf(x/√2))
  kGeluTanh,     // x/2 · (1 + tanh(√(2/π)(x + 0.044715x³)))
};

struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0;
  float beta = 0;

  // From the attributes activation ("" where absent), activation_alpha and activation_beta.
  static StatusOr<Activation> Parse(const Attributes& attributes);
};

// f(x), for kernels that compute in double.
double Activate(const Activation& activation, double x);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_ACTIVATION_H_
