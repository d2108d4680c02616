// How often this test program has called the allocator.
#ifndef CHAIRLIFT_TESTS_RUNTIME_ALLOCATION_COUNT_H_
#define CHAIRLIFT_TESTS_RUNTIME_ALLOCATION_COUNT_H_

#include <cstdint>

namespace chairlift::testing {

int64_t AllocationCount();

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_RUNTIME_ALLOCATION_COUNT_H_
