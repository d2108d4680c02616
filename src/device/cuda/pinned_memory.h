// Host memory that an NVIDIA GPU can access directly.
#ifndef CHAIRLIFT_DEVICE_CUDA_PINNED_MEMORY_H_
#define CHAIRLIFT_DEVICE_CUDA_PINNED_MEMORY_H_

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "chairlift/status.h"

namespace chairlift::cuda {

// Reusable blocks of pinned memory, because pinning takes a millisecond. Thread-safe. Blocks in use
// keep the pool alive.
class PinnedMemory : public std::enable_shared_from_this<PinnedMemory> {
 public:
  static std::shared_ptr<PinnedMemory> Create();
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // At least `bytes` bytes, 64-byte aligned, uninitialised. The last copy returns them to the pool.
  // kResourceExhausted if the system grants no more.
  StatusOr<std::shared_ptr<void>> Take(size_t bytes);

 private:
  static constexpr int kClasses = 48;                     // by power of two
  static constexpr size_t kMostUnused = size_t{1} << 28;  // bytes kept for reuse

  PinnedMemory() = default;
  void GiveBack(void* block, int size_class);

  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> unused_;  // guarded by mutex_
  size_t unused_bytes_ = 0;                          // guarded by mutex_
};

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_DEVICE_CUDA_PINNED_MEMORY_H_
