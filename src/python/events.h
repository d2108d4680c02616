// How engine threads reach Python. They never take the interpreter's lock, which other threads may
// hold for milliseconds. They push events, and one thread of the package runs them.
#ifndef CHAIRLIFT_PYTHON_EVENTS_H_
#define CHAIRLIFT_PYTHON_EVENTS_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace chairlift::python {

// Thread-safe.
class Events {
 public:
  // An event runs with the interpreter's lock held, and may throw nanobind::python_error. It holds
  // references to Python objects as pointers and drops them itself, because it may be destroyed on
  // a thread without the lock.
  using Event = std::function<void()>;

  // The instance of this process. A child of fork() has its own, because a thread that does not
  // exist in the child may hold the lock of its parent's. Never destroyed.
  static Events& Own();

  // After Close() the event is dropped, and what it owns is leaked: the interpreter is ending.
  void Push(Event event);
  // Waits for events with the interpreter's lock released (the caller holds it), and runs those
  // that arrived, in order. False if there are none and none will come.
  bool Run();
  // Run() returns false once it has run the events pushed before.
  void Close();

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Event> events_;
  bool closed_ = false;
};

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_EVENTS_H_
