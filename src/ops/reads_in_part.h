// Kernels of which data decide how much of their inputs they read.
#ifndef CHAIRLIFT_OPS_READS_IN_PART_H_
#define CHAIRLIFT_OPS_READS_IN_PART_H_

#include "ops/operator.h"

namespace chairlift {

// Implemented by such a Kernel, on the CPU, for profiles.
class ReadsInPart {
 public:
  virtual ~ReadsInPart() = default;
  // Bytes of its inputs that a run with these arguments neither reads nor writes.
  virtual double UntouchedBytes(const KernelArgs& args) const = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_READS_IN_PART_H_
