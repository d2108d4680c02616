// Memory shared between the server and a worker of a Python model.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_SHARED_REGION_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_SHARED_REGION_H_

#include <cstddef>
#include <memory>

#include "chairlift/status.h"

namespace chairlift {

// Fixed size and sealed: a process with its descriptor can neither shrink nor grow it. It has no
// name and is freed with the last process that maps it.
class SharedRegion {
 public:
  // At least `bytes` bytes, for which memory is reserved. ResourceExhausted if there is not enough.
  static StatusOr<std::unique_ptr<SharedRegion>> Create(size_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Passed to the worker; −1 afterwards.
  int descriptor() const { return descriptor_; }
  void CloseDescriptor();

 private:
  SharedRegion(int descriptor, std::byte* data, size_t size)
      : descriptor_(descriptor), data_(data), size_(size) {}

  int descriptor_;
  std::byte* const data_;
  const size_t size_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_SHARED_REGION_H_
