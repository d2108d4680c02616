// How often this test program has called the allocator.
#ifndef CHAIRLIFT_TESTS_RUNTIME_ALLOCATION_COUNT_H_
#define CHAIRLIFT_TESTS_RUNTIME_ALLOCATION_COUNT_H_

#include <cstdint>

namespace chairlift::testing {

int64_t AllocationCount();

// Whether they are counted: sanitizers bring an allocator of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHAIRLIFT_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHAIRLIFT_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef CHAIRLIFT_COUNTS_ALLOCATIONS
#define CHAIRLIFT_COUNTS_ALLOCATIONS 1
#endif

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_RUNTIME_ALLOCATION_COUNT_H_
