// A Resize with all axes known: what its kernels are made from.
#ifndef CHAIRLIFT_OPS_IMAGE_RESIZE_PLAN_H_
#define CHAIRLIFT_OPS_IMAGE_RESIZE_PLAN_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "ops/image/resize_axis.h"
#include "ops/operator.h"

namespace chairlift {

struct ResizePlan {
  ResizeOptions options;
  DType dtype = DType::kFloat;
  int width = 1;  // workers that share a large image
  // Outermost first, over the bytes as they lie: a channel-blocked tensor has its blocks last.
  std::vector<ResizeAxis> axes;
};

// `in` and `out` are dimensions as they lie in memory. Nearest takes any type, the others any but
// bool and the half types.
std::unique_ptr<Kernel> MakeNearestKernel(const ResizePlan& plan);
StatusOr<std::unique_ptr<Kernel>> MakeInterpolationKernel(const ResizePlan& plan);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_IMAGE_RESIZE_PLAN_H_
