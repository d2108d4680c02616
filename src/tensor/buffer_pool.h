// Recycled memory for tensors: in the steady state, allocations reuse freed buffers.
#ifndef CHAIRLIFT_TENSOR_BUFFER_POOL_H_
#define CHAIRLIFT_TENSOR_BUFFER_POOL_H_

#include <cstddef>
#include <memory>

namespace chairlift {

// Thread-safe. Buffers may outlive the pool.
class BufferPool {
 public:
  // Keeps at most `max_free_bytes` of unused buffers.
  explicit BufferPool(size_t max_free_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // At least `bytes` uninitialised bytes at get(), 64-byte aligned; from 4 MiB up, 2 MiB-aligned
  // and on huge pages if granted. The memory returns to the pool with the last copy. If a free
  // buffer fits, no allocator is called, not even for the reference count.
  std::shared_ptr<void> Acquire(size_t bytes);

  size_t free_bytes() const;
  // Frees buffers that were not needed since the last call: per size, the minimum number that was
  // unused at any time. Called periodically, it releases memory after a burst.
  void ReleaseIdle();

  // The process-wide pool behind Tensor::Allocate(). A child of fork() may use its copy, unless
  // another thread was in the first call.
  static BufferPool& Default();

 private:
  struct State;
  template <typename T>
  class HeaderAllocator;
  std::shared_ptr<State> state_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_BUFFER_POOL_H_
