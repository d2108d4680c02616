// The memory of compiled kernels, so that it can be bounded.
#ifndef CHAIRLIFT_OPS_KERNEL_MEMORY_H_
#define CHAIRLIFT_OPS_KERNEL_MEMORY_H_

#include <cstdint>

namespace chairlift {

// A thread compiles one kernel at a time. Memory that a kernel keeps, if it grows with shapes or is
// large, is added while it is compiled.
class KernelMemory {
 public:
  static void Add(int64_t bytes) { added_ += bytes; }
  // The total that this thread has added.
  static int64_t Added() { return added_; }

 private:
  static inline thread_local int64_t added_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_KERNEL_MEMORY_H_
