#include "support/failing_allocator.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHAIRLIFT_REPLACES_ALLOCATOR 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define CHAIRLIFT_REPLACES_ALLOCATOR 0
#endif
#endif
#ifndef CHAIRLIFT_REPLACES_ALLOCATOR
#define CHAIRLIFT_REPLACES_ALLOCATOR 1
#endif

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::atomic<int64_t> attempts{0};
std::atomic<int64_t> failing{kNever};  // the attempt that fails
std::atomic<int64_t> limit{kNever};    // of held
std::atomic<int64_t> held{0};
std::atomic<int64_t> held_before{0};
std::atomic<int64_t> most_held{0};
std::atomic<int64_t> failed{0};
thread_local bool exempt = false;

void Begin(int64_t nth, int64_t bytes) {
  failing = kNever;
  limit = kNever;
  attempts = 0;
  failed = 0;
  held_before = held.load();
  most_held = held.load();
  limit = bytes == kNever ? kNever : held.load() + bytes;
  failing = nth;
}

#if CHAIRLIFT_REPLACES_ALLOCATOR

bool Permitted(size_t bytes) {
  if (exempt) return true;
  const int64_t attempt = attempts.fetch_add(1) + 1;
  const int64_t room = limit.load() - held.load();
  if (attempt != failing.load() &&
      (limit.load() == kNever || (room >= 0 && bytes <= static_cast<size_t>(room)))) {
    return true;
  }
  failed.fetch_add(1);
  return false;
}

void Hold(int64_t bytes) {
  const int64_t now = held.fetch_add(bytes) + bytes;
  int64_t most = most_held.load();
  while (now > most && !most_held.compare_exchange_weak(most, now)) {
  }
}

void* AttemptNew(size_t bytes, size_t alignment) {
  if (!Permitted(bytes)) return nullptr;
  void* p = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    p = std::malloc(bytes);
  } else if (posix_memalign(&p, alignment, bytes) != 0) {
    p = nullptr;
  }
  if (p != nullptr) Hold(static_cast<int64_t>(malloc_usable_size(p)));
  return p;
}

void* New(size_t bytes, size_t alignment) {
  while (true) {
    if (void* p = AttemptNew(bytes, alignment)) return p;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* NewNoThrow(size_t bytes, size_t alignment) noexcept {
  try {
    return New(bytes, alignment);
  } catch (...) {
    return nullptr;
  }
}

void Delete(void* p) {
  if (p != nullptr) held.fetch_sub(static_cast<int64_t>(malloc_usable_size(p)));
  std::free(p);
}

#endif

}  // namespace

#if CHAIRLIFT_REPLACES_ALLOCATOR
// Out of line: where GCC 12 inlines one of a pair only, it takes the two for mismatched.
#define CHAIRLIFT_NOINLINE __attribute__((noinline))
using std::align_val_t;
using std::nothrow_t;
CHAIRLIFT_NOINLINE void* operator new(size_t n) { return New(n, 0); }
CHAIRLIFT_NOINLINE void* operator new[](size_t n) { return New(n, 0); }
CHAIRLIFT_NOINLINE void* operator new(size_t n, align_val_t a) {
  return New(n, static_cast<size_t>(a));
}
CHAIRLIFT_NOINLINE void* operator new[](size_t n, align_val_t a) {
  return New(n, static_cast<size_t>(a));
}
CHAIRLIFT_NOINLINE void* operator new(size_t n, const nothrow_t&) noexcept {
  return NewNoThrow(n, 0);
}
CHAIRLIFT_NOINLINE void* operator new[](size_t n, const nothrow_t&) noexcept {
  return NewNoThrow(n, 0);
}
CHAIRLIFT_NOINLINE void* operator new(size_t n, align_val_t a, const nothrow_t&) noexcept {
  return NewNoThrow(n, static_cast<size_t>(a));
}
CHAIRLIFT_NOINLINE void* operator new[](size_t n, align_val_t a, const nothrow_t&) noexcept {
  return NewNoThrow(n, static_cast<size_t>(a));
}
CHAIRLIFT_NOINLINE void operator delete(void* p) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete[](void* p) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, size_t) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete[](void* p, size_t) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, align_val_t) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete[](void* p, align_val_t) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, size_t, align_val_t) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete[](void* p, size_t, align_val_t) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, const nothrow_t&) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete[](void* p, const nothrow_t&) noexcept { Delete(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, align_val_t, const nothrow_t&) noexcept {
  Delete(p);
}
CHAIRLIFT_NOINLINE void operator delete[](void* p, align_val_t, const nothrow_t&) noexcept {
  Delete(p);
}

extern "C" {

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (!Permitted(bytes)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  auto* p = reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
  if (p != MAP_FAILED) Hold(static_cast<int64_t>(bytes));
  return p;
}

int munmap(void* at, size_t bytes) noexcept {
  const auto result = static_cast<int>(syscall(SYS_munmap, at, bytes));
  if (result == 0) held.fetch_sub(static_cast<int64_t>(bytes));
  return result;
}

}  // extern "C"
#endif

namespace chairlift::testing {

bool FailingAllocator::Available() { return CHAIRLIFT_REPLACES_ALLOCATOR; }
void FailingAllocator::FailNth(int64_t n) { Begin(n, kNever); }
void FailingAllocator::LimitTo(int64_t bytes) { Begin(kNever, bytes); }
int64_t FailingAllocator::Stop() {
  failing = kNever;
  limit = kNever;
  return attempts.load();
}
int64_t FailingAllocator::failures() { return failed.load(); }
int64_t FailingAllocator::held_bytes() { return held.load(); }
int64_t FailingAllocator::peak_bytes() { return most_held.load() - held_before.load(); }

FailingAllocator::Exempt::Exempt() : before_(std::exchange(exempt, true)) {}
FailingAllocator::Exempt::~Exempt() { exempt = before_; }

}  // namespace chairlift::testing
