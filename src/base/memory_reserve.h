// Memory reserved for work that must not fail half-way: the bookkeeping of accepted requests.
//
// Allocations whose size depends on a request (tensors, plans, graphs) may fail, which fails the
// request. Between them the engine moves accepted requests from queue to worker to answer with
// small allocations. If one of those failed, a request would be lost. So while a thread is in such
// a section, an operator new that finds no memory releases a part of the reserve and tries again.
// The reserve is address space that is never written to, so it costs no resident memory.
#ifndef CHAIRLIFT_BASE_MEMORY_RESERVE_H_
#define CHAIRLIFT_BASE_MEMORY_RESERVE_H_

#include <cstddef>

namespace chairlift {

// Thread-safe.
class MemoryReserve {
 public:
  static constexpr size_t kSliceBytes = size_t{512} << 10;
  static constexpr int kSlices = 32;

  // Fills the reserve and installs the process's new-handler. That handler calls the previous one
  // when the reserve is empty. Further calls do nothing.
  static void Install();

  // Tries to fill the reserve, and returns whether most of it is there: if so, work that is started
  // now can be completed.
  static bool Ready();
  static int slices();

  // During its lifetime, this thread's allocations may use the reserve. Can be nested.
  class Use {
   public:
    Use();
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const bool before_;
  };
  // During its lifetime, this thread's allocations may not use the reserve: for foreign code and
  // anything that is allowed to fail.
  class Suspend {
   public:
    Suspend();
    ~Suspend();
    Suspend(const Suspend&) = delete;
    Suspend& operator=(const Suspend&) = delete;

   private:
    const bool before_;
  };
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_MEMORY_RESERVE_H_
