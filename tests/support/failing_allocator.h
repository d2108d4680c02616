// The allocator of a test program, which fails when it is asked to. A program that links it has
// operator new (every form) and mmap() replaced, its shared libraries included.
//
//   FailingAllocator::FailNth(n);  // the n-th attempt from now on, of any thread
//   ... what is tested ...
//   const int64_t attempts = FailingAllocator::Stop();
//   if (attempts < n) break;       // every one of them has failed once
#ifndef CHAIRLIFT_TESTS_SUPPORT_FAILING_ALLOCATOR_H_
#define CHAIRLIFT_TESTS_SUPPORT_FAILING_ALLOCATOR_H_

#include <cstdint>

namespace chairlift::testing {

// Thread-safe. Like the allocator that it replaces, it asks the new-handler where it has nothing
// to give, and tries again.
class FailingAllocator {
 public:
  // Whether it can fail: sanitizers bring an allocator of their own.
  static bool Available();

  // The n-th attempt (from 1) from now on fails. Attempts of threads under Exempt do not count.
  static void FailNth(int64_t n);
  // What would take more than `bytes` beyond what is held now fails.
  static void LimitTo(int64_t bytes);
  // Nothing fails any more. Returns the attempts since FailNth() or LimitTo().
  static int64_t Stop();

  static int64_t failures();    // since FailNth() or LimitTo()
  static int64_t held_bytes();  // now
  // The most that was held beyond what was when FailNth() or LimitTo() was called.
  static int64_t peak_bytes();

  // What this thread allocates while it lives neither fails nor counts: the test's own.
  class Exempt {
   public:
    Exempt();
    ~Exempt();
    Exempt(const Exempt&) = delete;
    Exempt& operator=(const Exempt&) = delete;

   private:
    const bool before_;
  };
};

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_SUPPORT_FAILING_ALLOCATOR_H_
