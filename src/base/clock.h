// Time as a dependency: schedulers and queues take `now` or a Clock and never read the system's
// clock.
#ifndef CHAIRLIFT_BASE_CLOCK_H_
#define CHAIRLIFT_BASE_CLOCK_H_

#include <atomic>
#include <chrono>

namespace chairlift {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;

  static const Clock& Steady();
};

// A clock that moves only when it is set, for tests and the simulator.
class FakeClock : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(ns_.load())); }
  void Advance(Duration by) { ns_ += by.count(); }

 private:
  std::atomic<int64_t> ns_{0};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_CLOCK_H_
