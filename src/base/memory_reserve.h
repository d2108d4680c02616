// Memory kept back for what must not fail half-way: the bookkeeping of requests that were accepted.
//
// Allocations whose size follows from a request (tensors, plans, graphs) may fail, and fail their
// request. Between them the engine moves what it has accepted from queue to worker to answer in
// small allocations; if one of those failed, a request would be lost. So while a thread is in such
// a section, operator new that finds no memory gives up a part of the reserve and tries again. The
// reserve is address space that nothing is written to: it costs no resident memory.
#ifndef CHAIRLIFT_BASE_MEMORY_RESERVE_H_
#define CHAIRLIFT_BASE_MEMORY_RESERVE_H_

#include <cstddef>

namespace chairlift {

// Thread-safe.
class MemoryReserve {
 public:
  static constexpr size_t kSliceBytes = size_t{512} << 10;
  static constexpr int kSlices = 32;

  // Fills the reserve and installs the process's new-handler, which calls the one before it where
  // it has nothing to give. Further calls do nothing.
  static void Install();

  // Whether most of it is there, after an attempt to fill it: what is begun now can be ended.
  static bool Ready();
  static int slices();

  // Until it goes, what this thread allocates may draw on the reserve. They nest.
  class Use {
   public:
    Use();
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const bool before_;
  };
  // Until it goes, what this thread allocates may not: others' code, and whatever may fail.
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
