// Recycled memory for tensors: what the steady state allocates, it allocates from what it freed.
#ifndef CHAIRLIFT_TENSOR_BUFFER_POOL_H_
#define CHAIRLIFT_TENSOR_BUFFER_POOL_H_

#include <cstddef>
#include <memory>

namespace chairlift {

// Thread-safe. Buffers may outlive the pool.
class BufferPool {
 public:
  // Keeps at most `max_free_bytes` of buffers that nobody uses.
  explicit BufferPool(size_t max_free_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // At least `bytes` uninitialised bytes at get(), 64-byte aligned; 2 MiB-aligned and on huge pages
  // where granted from 4 MiB up. The memory returns to the pool with the last copy. A request that
  // a free buffer can meet calls no allocator, not even for the count of references.
  std::shared_ptr<void> Acquire(size_t bytes);

  size_t free_bytes() const;
  // Frees the buffers that were not needed since the last call: of each size, as many as lay unused
  // all the time. Called from time to time, it gives back what a burst has left.
  void ReleaseIdle();

  // The process's own, behind Tensor::Allocate(). A child of fork() may use its copy, unless
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
