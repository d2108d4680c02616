// What compiled kernels hold, so that whoever keeps them can bound it.
#ifndef CHAIRLIFT_OPS_KERNEL_MEMORY_H_
#define CHAIRLIFT_OPS_KERNEL_MEMORY_H_

#include <cstdint>

namespace chairlift {

// A thread compiles one kernel at a time. What a kernel keeps that grows with its shapes, or is
// large, is added while it is compiled.
class KernelMemory {
 public:
  static void Add(int64_t bytes) { added_ += bytes; }
  // All that this thread ever added.
  static int64_t Added() { return added_; }

 private:
  static inline thread_local int64_t added_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_KERNEL_MEMORY_H_
