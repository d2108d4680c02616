// The activation at the end of a fused convolution or matrix product.
#ifndef CHAIRLIFT_OPS_LINEAR_ACTIVATION_H_
#define CHAIRLIFT_OPS_LINEAR_ACTIVATION_H_

#include "base/status.h"
#include "ops/attributes.h"
#include "ops/linear/activation_kind.h"

namespace chairlift {

struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0;
  float beta = 0;

  // From the attributes activation ("" if absent), activation_alpha and activation_beta.
  static StatusOr<Activation> Parse(const Attributes& attributes);
};

// f(x), for kernels that compute in double.
double Activate(const Activation& activation, double x);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_ACTIVATION_H_
