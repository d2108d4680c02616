// Decides when to trim the C library's heaps, which by themselves return only the end of each heap.
#ifndef CHAIRLIFT_CLI_HEAP_TRIM_H_
#define CHAIRLIFT_CLI_HEAP_TRIM_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace chairlift {

// Called every few seconds. A trim does not return memory in use, so another is due after that has
// been freed, whatever the size of the program is then.
class HeapTrim {
 public:
  // Bytes.
  struct Memory {
    int64_t resident = 0;
    int64_t free = 0;  // in the heaps, whether or not it was returned to the system
  };
  explicit HeapTrim(const Memory& now) : least_resident_(now.resident), last_(now) {}

  // Whether a trim may return enough to be worthwhile. `free` is slow, and is called only if the
  // program is larger than before.
  bool Due(int64_t resident, absl::FunctionRef<int64_t()> free);
  void Trimmed(const Memory& now);

  // The least that is worth a trim.
  static constexpr int64_t kWorthIt = int64_t{64} << 20;

 private:
  int64_t least_resident_;
  Memory last_;  // after the last trim; `free`: the minimum since then
};

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_HEAP_TRIM_H_
