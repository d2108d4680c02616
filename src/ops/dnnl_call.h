// One oneDNN primitive that several workers run concurrently, without allocations of ours in Run().
//
// Include it only in .cc files: it includes all of oneDNN's headers.
#ifndef CHAIRLIFT_OPS_DNNL_CALL_H_
#define CHAIRLIFT_OPS_DNNL_CALL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "device/cpu/team.h"

namespace chairlift {

// Exists while one primitive is created: makes sure that there is memory (ExpectMemoryForDnnl()),
// and adds the primitive's size to KernelMemory.
class MakingDnnlPrimitive {
 public:
  MakingDnnlPrimitive();
  ~MakingDnnlPrimitive();
  MakingDnnlPrimitive(const MakingDnnlPrimitive&) = delete;
  MakingDnnlPrimitive& operator=(const MakingDnnlPrimitive&) = delete;

 private:
  int64_t faults_;
};

class DnnlCall {
 public:
  struct Argument {
    int id;  // DNNL_ARG_...
    dnnl::memory::desc desc;
    void* fixed = nullptr;  // data that never moves (weights); null: passed to Run()
  };

  // The primitive must have been created with user scratchpad mode; the scratchpad is an ordinary
  // argument. Adds to KernelMemory.
  DnnlCall(const dnnl::primitive& primitive, std::vector<Argument> arguments);
  ~DnnlCall();
  DnnlCall(const DnnlCall&) = delete;
  DnnlCall& operator=(const DnnlCall&) = delete;

  // data[i] is for the i-th argument that is not fixed. Thread-safe for different worker numbers.
  Status Run(int worker, std::span<const void* const> data) const;

 private:
  struct Slot;  // the memory objects of one concurrent run
  // The number of slots kept. If more workers run the primitive concurrently, theirs are made for
  // each run.
  static constexpr int kSlots = 4;

  std::unique_ptr<Slot> MakeSlot() const;
  Status Execute(Slot& slot, std::span<const void* const> data) const;

  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  mutable std::array<std::atomic<Slot*>, kSlots> slots_{};  // free ones
};

// Calls f, which returns a StatusOr, and converts oneDNN's exceptions to errors: kUnimplemented if
// it has no implementation, OutOfMemory() if it has no memory.
template <typename F>
auto CatchDnnl(const char* what, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) {
      return Unimplemented("{}: no implementation for this case", what);
    }
    if (error.status == dnnl_out_of_memory) return OutOfMemory();
    return Internal("{}: oneDNN status {}", what, static_cast<int>(error.status));
  }
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_DNNL_CALL_H_
