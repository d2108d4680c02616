// When the C library's heaps are to be trimmed: it returns only the end of each heap by itself.
#ifndef CHAIRLIFT_CLI_HEAP_TRIM_H_
#define CHAIRLIFT_CLI_HEAP_TRIM_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace chairlift {

// Asked every few seconds. A trim returns nothing of what is in use: it is due again once that has
// been freed, however large the program is then.
class HeapTrim {
 public:
  // Bytes.
  struct Memory {
    int64_t resident = 0;
    int64_t free = 0;  // in the heaps, returned to the system or not
  };
  explicit HeapTrim(const Memory& now) : least_resident_(now.resident), last_(now) {}

  // Whether a trim may return enough to be worth it. `free` takes a while, and is called only where
  // the program is larger than it was.
  bool Due(int64_t resident, absl::FunctionRef<int64_t()> free);
  void Trimmed(const Memory& now);

  // What is worth a trim.
  static constexpr int64_t kWorthIt = int64_t{64} << 20;

 private:
  int64_t least_resident_;
  Memory last_;  // after the last trim; `free`: the least since then
};

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_HEAP_TRIM_H_
