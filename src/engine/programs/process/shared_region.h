// Memory that the server shares with a worker of a function.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_SHARED_REGION_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_SHARED_REGION_H_

#include <cstddef>
#include <memory>

#include "chairlift/status.h"

namespace chairlift {

// Of fixed size, and sealed: who has its descriptor can neither shrink it under the server's feet
// nor grow it. It has no name: it goes with the last process that maps it.
class SharedRegion {
 public:
  // At least so many bytes, which there is memory for. ResourceExhausted where there is not.
  static StatusOr<std::unique_ptr<SharedRegion>> Create(size_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // To be passed to the worker; −1 once it was.
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
