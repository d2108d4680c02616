// A Resize with all axes known, from which its kernels are made.
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
  // Outermost first, in the order of memory: a channel-blocked tensor has its blocks last.
  std::vector<ResizeAxis> axes;
};

// `in` and `out` are dimensions as stored. Nearest supports any type, the others any except bool
// and the 16-bit floats.
std::unique_ptr<Kernel> MakeNearestKernel(const ResizePlan& plan);
StatusOr<std::unique_ptr<Kernel>> MakeInterpolationKernel(const ResizePlan& plan);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_IMAGE_RESIZE_PLAN_H_
