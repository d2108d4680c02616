#include "tensor/buffer_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <new>
#include <utility>

namespace chairlift {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{4} << 20;
// A small buffer's Block and reference count are in the same allocation, before its bytes. The
// bytes of a huge buffer start on their own page.
constexpr size_t kHeaderBytes = 192;

// Sizes are rounded up to one of four steps per power of two. So a free buffer serves requests of
// nearly its size, and at most a quarter is wasted.
constexpr int kSizeClasses = 4 * 64 + 1;
struct SizeClass {
  int index;
  size_t bytes;
};
SizeClass ClassOf(size_t bytes) {
  if (bytes <= 256) return {0, 256};
  const int log = std::bit_width(bytes - 1) - 1;  // 2^log < bytes <= 2^(log+1)
  const size_t step = size_t{1} << (log - 2);
  const size_t steps = (bytes - (size_t{1} << log) + step - 1) / step;  // 1..4
  return {4 * log + static_cast<int>(steps), (size_t{1} << log) + steps * step};
}

struct Block {
  Block* next = nullptr;
  void* data = nullptr;
  size_t bytes = 0;
  int size_class = 0;
  bool huge = false;
  void* header() { return reinterpret_cast<std::byte*>(this) + sizeof(Block); }
};
constexpr size_t kCountBytes = kHeaderBytes - sizeof(Block);

Block* NewBlock(SizeClass size) {
  const bool huge = size.bytes >= kHugeFrom;
  void* memory =
      ::operator new (kHeaderBytes + (huge ? 0 : size.bytes), std::align_val_t{kAlignment});
  auto* block = new (memory) Block;
  block->bytes = size.bytes;
  block->size_class = size.index;
  block->huge = huge;
  block->data = static_cast<std::byte*>(memory) + kHeaderBytes;
  if (huge) {
    try {
      block->data = ::operator new (size.bytes, std::align_val_t{kHugePage});
    } catch (...) {
      ::operator delete (memory, std::align_val_t{kAlignment});
      throw;
    }
    madvise(block->data, size.bytes, MADV_HUGEPAGE);  // a hint: if refused, only speed is lost
  }
  return block;
}

void FreeBlock(Block* block) {
  if (block->huge) ::operator delete (block->data, std::align_val_t{kHugePage});
  ::operator delete (static_cast<void*>(block), std::align_val_t{kAlignment});
}

}  // namespace

struct BufferPool::State {
  mutable std::mutex mutex;
  size_t max_free_bytes;
  size_t free_bytes = 0;
  struct FreeList {
    Block* first = nullptr;  // the last one returned
    int64_t count = 0;
    int64_t idle = 0;  // the minimum count since the last ReleaseIdle()
  };
  std::array<FreeList, kSizeClasses> free{};

  explicit State(size_t max) : max_free_bytes(max) {}
  ~State() {
    for (const FreeList& list : free) FreeAll(list.first);
  }
  static void FreeAll(Block* block) {
    while (block != nullptr) FreeBlock(std::exchange(block, block->next));
  }

  Block* Take(SizeClass size) {
    const std::lock_guard<std::mutex> lock(mutex);
    FreeList& list = free[size.index];
    if (list.first == nullptr) return nullptr;
    free_bytes -= list.first->bytes;
    list.idle = std::min(list.idle, --list.count);
    return std::exchange(list.first, list.first->next);
  }
  void Return(Block* block) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (free_bytes + block->bytes <= max_free_bytes) {
        FreeList& list = free[block->size_class];
        free_bytes += block->bytes;
        block->next = std::exchange(list.first, block);
        ++list.count;
        return;
      }
    }
    FreeBlock(block);
  }
  // The last `idle` blocks of a list: the first ones returned.
  Block* TakeIdle(int index) {
    const std::lock_guard<std::mutex> lock(mutex);
    FreeList& list = free[index];
    Block** at = &list.first;
    for (int64_t kept = list.count - list.idle; kept > 0; --kept) at = &(*at)->next;
    Block* const idle = std::exchange(*at, nullptr);
    if (idle != nullptr) free_bytes -= static_cast<size_t>(list.idle) * idle->bytes;
    list.count -= list.idle;
    list.idle = list.count;
    return idle;
  }
};

// Places a shared_ptr's control block in the buffer's own header, and returns the buffer when the
// control block is freed.
template <typename T>
class BufferPool::HeaderAllocator {
 public:
  using value_type = T;
  HeaderAllocator(std::shared_ptr<State> state, Block* block)
      : state_(std::move(state)), block_(block) {}
  template <typename U>
  HeaderAllocator(const HeaderAllocator<U>& other)  // NOLINT(google-explicit-constructor)
      : state_(other.state_), block_(other.block_) {}

  T* allocate(size_t) {
    static_assert(sizeof(T) <= kCountBytes && alignof(T) <= alignof(void*));
    return static_cast<T*>(block_->header());
  }
  void deallocate(T*, size_t) { state_->Return(block_); }

  template <typename U>
  bool operator==(const HeaderAllocator<U>& other) const {
    return block_ == other.block_;
  }

 private:
  template <typename U>
  friend class HeaderAllocator;
  std::shared_ptr<State> state_;
  Block* block_;
};

BufferPool::BufferPool(size_t max_free_bytes) : state_(std::make_shared<State>(max_free_bytes)) {}
BufferPool::~BufferPool() = default;

std::shared_ptr<void> BufferPool::Acquire(size_t bytes) {
  const SizeClass size = ClassOf(bytes);
  Block* block = state_->Take(size);
  if (block == nullptr) block = NewBlock(size);
  return std::shared_ptr<void>(
      block->data, [](void*) {}, HeaderAllocator<std::byte>(state_, block));
}

void BufferPool::ReleaseIdle() {
  for (int i = 0; i < kSizeClasses; ++i) State::FreeAll(state_->TakeIdle(i));
}

size_t BufferPool::free_bytes() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->free_bytes;
}

BufferPool& BufferPool::Default() {
  // Sanitizers detect misuse of freed memory, so nothing is kept when one is active.
#if defined(__SANITIZE_ADDRESS__)
  constexpr size_t kMaxFreeBytes = 0;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  constexpr size_t kMaxFreeBytes = 0;
#else
  constexpr size_t kMaxFreeBytes = size_t{256} << 20;
#endif
#else
  constexpr size_t kMaxFreeBytes = size_t{256} << 20;
#endif
  static auto* const kPool = [] {
    auto* pool = new BufferPool(kMaxFreeBytes);
    // Ensures that no other thread is in the pool while fork() copies it. (If there is no memory
    // for the handlers, a child may find the pool locked.)
    (void)pthread_atfork([] { Default().state_->mutex.lock(); },
                         [] { Default().state_->mutex.unlock(); },
                         [] { Default().state_->mutex.unlock(); });
    return pool;
  }();
  return *kPool;
}

}  // namespace chairlift
