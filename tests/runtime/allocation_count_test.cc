// Counts every operator new of this test program.
#include "runtime/allocation_count.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

namespace {
std::atomic<int64_t> allocations{0};

#if CHAIRLIFT_COUNTS_ALLOCATIONS
void* Count(void* p) {
  ++allocations;
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
#endif
}  // namespace

#if CHAIRLIFT_COUNTS_ALLOCATIONS
// Out of line: where GCC 12 inlines one of a pair only, it takes the two for mismatched.
#define CHAIRLIFT_NOINLINE __attribute__((noinline))
CHAIRLIFT_NOINLINE void* operator new(size_t bytes) { return Count(std::malloc(bytes)); }
CHAIRLIFT_NOINLINE void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(a, (bytes + a - 1) / a * a));
}
CHAIRLIFT_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, size_t) noexcept { std::free(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
CHAIRLIFT_NOINLINE void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
#endif

namespace chairlift::testing {

int64_t AllocationCount() { return allocations; }

TEST(AllocationCountTest, CountsEachNew) {
  if (!CHAIRLIFT_COUNTS_ALLOCATIONS) GTEST_SKIP();
  const int64_t before = AllocationCount();
  const auto kept = std::make_unique<std::atomic<int>>(1);
  EXPECT_EQ(AllocationCount() - before, kept->load());
}

}  // namespace chairlift::testing
