#include "cli/load/idle.h"

#include <sys/resource.h>
#include <sys/time.h>

#include <chrono>
#include <thread>

namespace chairlift {

void WaitUntilIdle() {
  constexpr std::chrono::milliseconds kLook(50);
  constexpr double kIdle = 0.1;  // of a core
  constexpr int kLooks = 60'000 / 50, kQuiet = 3;
  const auto cpu_seconds = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto of = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return of(used.ru_utime) + of(used.ru_stime);
  };
  double before = cpu_seconds();
  for (int look = 0, quiet = 0; look < kLooks && quiet < kQuiet; ++look) {
    std::this_thread::sleep_for(kLook);
    const double now = cpu_seconds();
    quiet = now - before < kIdle * std::chrono::duration<double>(kLook).count() ? quiet + 1 : 0;
    before = now;
  }
}

}  // namespace chairlift
