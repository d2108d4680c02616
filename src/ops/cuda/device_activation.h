// An activation in the form of kernel parameters: chairlift::Activation without parsing.
#ifndef CHAIRLIFT_OPS_CUDA_DEVICE_ACTIVATION_H_
#define CHAIRLIFT_OPS_CUDA_DEVICE_ACTIVATION_H_

#include "ops/linear/activation_kind.h"

namespace chairlift::cuda {

struct DeviceActivation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0;
  float beta = 0;
};

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_DEVICE_ACTIVATION_H_
