#include "base/out_of_memory.h"

#include "base/status.h"

namespace chairlift {

Status OutOfMemory() {
  static const Status kStatus =
      ResourceExhausted("the process has no memory left for this; retry later, or ask for less");
  return kStatus;
}

bool SaysOutOfMemory(const std::system_error& error) {
  return error.code() == std::errc::not_enough_memory ||
         error.code() == std::errc::resource_unavailable_try_again;
}

}  // namespace chairlift
