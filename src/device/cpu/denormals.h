// Denormal floats flushed to zero on the calling thread: arithmetic on them can be 15 times slower.
#ifndef CHAIRLIFT_DEVICE_CPU_DENORMALS_H_
#define CHAIRLIFT_DEVICE_CPU_DENORMALS_H_

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace chairlift {

// Sets flush-to-zero and denormals-are-zero for this thread until destroyed. Nothing where the
// machine has no such modes.
class ScopedFlushDenormals {
 public:
#if defined(__SSE2__)
  ScopedFlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushToZero | kAreZero); }
  ~ScopedFlushDenormals() { _mm_setcsr(saved_); }
#else
  ScopedFlushDenormals() = default;
#endif
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kAreZero = 0x0040;
  unsigned saved_;
#endif
};

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_DENORMALS_H_
