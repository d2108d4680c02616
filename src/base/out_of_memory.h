// Turns running out of memory into a Status, at the boundaries where a caller can handle it.
#ifndef CHAIRLIFT_BASE_OUT_OF_MEMORY_H_
#define CHAIRLIFT_BASE_OUT_OF_MEMORY_H_

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/memory_reserve.h"
#include "chairlift/status.h"

namespace chairlift {

// kResourceExhausted. Allocates nothing after the first call.
Status OutOfMemory();

// Whether `error` means that memory or threads have run out.
bool SaysOutOfMemory(const std::system_error& error);

// Calls f, which returns a Status or a StatusOr. Returns OutOfMemory() if f throws because memory
// ran out. Allocations of f do not use the reserve. Other exceptions pass through.
template <typename F>
auto CatchOutOfMemory(F&& f) -> decltype(f()) {
  const MemoryReserve::Suspend suspend;
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::length_error&) {  // a container that no address space could hold
    return OutOfMemory();
  } catch (const std::system_error& error) {
    if (!SaysOutOfMemory(error)) throw;
    return OutOfMemory();
  }
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_OUT_OF_MEMORY_H_
