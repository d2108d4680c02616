#include "engine/execution/request.h"

#include "base/status.h"

namespace chairlift {

bool IsLate(const Request& request, TimePoint now) {
  return request.deadline && now >= *request.deadline;
}

Status LateStatus() { return DeadlineExceeded("the deadline passed while the request ran"); }

}  // namespace chairlift
