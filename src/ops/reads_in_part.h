// Kernels that read a data-dependent part of their inputs.
#ifndef CHAIRLIFT_OPS_READS_IN_PART_H_
#define CHAIRLIFT_OPS_READS_IN_PART_H_

#include "ops/operator.h"

namespace chairlift {

// Implemented by such CPU kernels, for profiles.
class ReadsInPart {
 public:
  virtual ~ReadsInPart() = default;
  // Bytes of its inputs that a run with these arguments neither reads nor writes.
  virtual double UntouchedBytes(const KernelArgs& args) const = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_READS_IN_PART_H_
