#include "device/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace chairlift::cuda {

std::shared_ptr<PinnedMemory> PinnedMemory::Create() {
  return std::shared_ptr<PinnedMemory>(new PinnedMemory());
}

PinnedMemory::~PinnedMemory() {
  for (const std::vector<void*>& blocks : unused_) {
    for (void* const block : blocks) cudaFreeHost(block);
  }
}

StatusOr<std::shared_ptr<void>> PinnedMemory::Take(size_t bytes) {
  constexpr size_t kLeast = 256;
  const int size_class = std::countr_zero(std::bit_ceil(std::max(bytes, kLeast)));
  if (size_class >= kClasses) return ResourceExhausted("no pinned memory for {} bytes", bytes);
  void* block = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& unused = unused_[static_cast<size_t>(size_class)];
    if (!unused.empty()) {
      block = unused.back();
      unused.pop_back();
      unused_bytes_ -= size_t{1} << size_class;
    }
  }
  if (block == nullptr &&
      cudaHostAlloc(&block, size_t{1} << size_class, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();
    return ResourceExhausted("no pinned memory for {} bytes", bytes);
  }
  return std::shared_ptr<void>(
      block, [pool = shared_from_this(), size_class](void* p) { pool->GiveBack(p, size_class); });
}

void PinnedMemory::GiveBack(void* block, int size_class) {
  const size_t bytes = size_t{1} << size_class;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (unused_bytes_ + bytes <= kMostUnused) {
      unused_[static_cast<size_t>(size_class)].push_back(block);
      unused_bytes_ += bytes;
      return;
    }
  }
  cudaFreeHost(block);
}

}  // namespace chairlift::cuda
