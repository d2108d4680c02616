// How engine threads reach Python. They never take the interpreter's lock, which other threads may
// hold for milliseconds: they push events, and one thread of the package runs them.
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
  // An event runs with the interpreter's lock held, and may throw nanobind::python_error. It owns
  // references to Python objects as pointers, which it drops itself: it may be destroyed on a
  // thread without the lock.
  using Event = std::function<void()>;

  // Those of this process: a child of fork() has its own, for the lock of its parent's may be held
  // by a thread that the child has not got. Never destroyed.
  static Events& Own();

  // After Close() the event is dropped, and what it owns is leaked: the interpreter is ending.
  void Push(Event event);
  // Waits for events without the interpreter's lock, which the caller holds, and runs those that
  // came, in order. False where there are none and none will come.
  bool Run();
  // Run() returns false once it has run what was pushed before.
  void Close();

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Event> events_;
  bool closed_ = false;
};

}  // namespace chairlift::python

#endif  // CHAIRLIFT_PYTHON_EVENTS_H_
