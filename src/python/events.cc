#include "python/events.h"

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

namespace chairlift::python {

namespace nb = nanobind;

Events& Events::Own() {
  static pid_t process = 0;
  static Events* own = nullptr;
  // First called under the interpreter's lock, both in the parent and in a child.
  if (const pid_t here = ::getpid(); process != here) {
    own = new Events;
    process = here;
  }
  return *own;
}

void Events::Push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    events_.push_back(std::move(event));
  }
  came_.notify_one();
}

bool Events::Run() {
  std::vector<Event> events;
  {
    const nb::gil_scoped_release release;
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return closed_ || !events_.empty(); });
    events.swap(events_);
  }
  for (const Event& event : events) {
    try {
      event();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("chairlift's event thread");
    }
  }
  return !events.empty();
}

void Events::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  came_.notify_one();
}

}  // namespace chairlift::python
