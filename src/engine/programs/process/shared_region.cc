#include "engine/programs/process/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace chairlift {
namespace {

constexpr size_t kLeastRegion = size_t{64} << 10;

// Rounded up so much that regions are rarely replaced when batches grow slowly.
size_t Rounded(size_t bytes) {
  bytes = std::max(bytes, kLeastRegion);
  const size_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Create(size_t bytes) {
  const size_t size = Rounded(bytes);
  const auto failed = [size](const char* what) {
    return ResourceExhausted("{} of {} bytes shared with a worker failed: {}", what, size,
                             std::strerror(errno));
  };
  const int descriptor = ::memfd_create("chairlift", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return failed("memfd_create");
  // Touching pages without memory would kill the process.
  if (::fallocate(descriptor, 0, 0, static_cast<off_t>(size)) != 0 ||
      ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const Status status = failed("memory");
    ::close(descriptor);
    return status;
  }
  void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    const Status status = failed("mmap");
    ::close(descriptor);
    return status;
  }
  return std::unique_ptr<SharedRegion>(
      new SharedRegion(descriptor, static_cast<std::byte*>(data), size));
}

SharedRegion::~SharedRegion() {
  CloseDescriptor();
  ::munmap(data_, size_);
}

void SharedRegion::CloseDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace chairlift
