// A mutex that spins before it sleeps, for critical sections no longer than a system call.
#ifndef CHAIRLIFT_BASE_ADAPTIVE_MUTEX_H_
#define CHAIRLIFT_BASE_ADAPTIVE_MUTEX_H_

#include <mutex>

namespace chairlift {

class AdaptiveMutex {
 public:
  void lock() {
    constexpr int kSpins = 100;  // a few microseconds: a send on a loopback socket
    for (int i = 0; i < kSpins; ++i) {
      if (mutex_.try_lock()) return;
      Relax();
    }
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static void Relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::mutex mutex_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_ADAPTIVE_MUTEX_H_
