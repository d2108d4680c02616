// The kernel of operators that are a single copy.
#ifndef CHAIRLIFT_OPS_MOVEMENT_COPY_KERNEL_H_
#define CHAIRLIFT_OPS_MOVEMENT_COPY_KERNEL_H_

#include <memory>
#include <utility>

#include "ops/movement/strided_copy.h"
#include "ops/operator.h"

namespace chairlift {

// Copies input 0 to output 0.
inline std::unique_ptr<Kernel> CopyKernel(StridedCopy copy) {
  return MakeKernel([copy = std::move(copy)](const KernelArgs& args) {
    copy.Run(args.inputs[0], args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_COPY_KERNEL_H_
