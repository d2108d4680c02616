// The activations that a fused convolution or matrix product can end with.
#ifndef CHAIRLIFT_OPS_LINEAR_ACTIVATION_KIND_H_
#define CHAIRLIFT_OPS_LINEAR_ACTIVATION_KIND_H_

#include <cstdint>

namespace chairlift {

// y = f(x); α and β as in ONNX's operators of the same names.
enum class ActivationKind : uint8_t {
  kNone,
  kRelu,
  kLeakyRelu,    // x < 0 ? αx : x
  kClip,         // min(max(x, α), β)
  kSigmoid,      // 1 / (1 + e⁻ˣ)
  kTanh,         // tanh(x)
  kHardSigmoid,  // clip(αx + β, 0, 1)
  kHardSwish,    // x · clip(x/6 + 1/2, 0, 1)
  kSilu,         // x · sigmoid(x)
  kElu,          // x < 0 ? α(eˣ − 1) : x
  kGelu,         // x/2 · (1 + erf(x/√2))
  kGeluTanh,     // x/2 · (1 + tanh(√(2/π)(x + 0.044715x³)))
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_ACTIVATION_KIND_H_
