// One oneDNN primitive that several workers run at once, with no allocation of ours in Run().
//
// For .cc files only: this header brings all of oneDNN's with it.
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

// Lives while one primitive is made: sees to it that there is memory (ExpectMemoryForDnnl()), and
// adds what the primitive holds to KernelMemory.
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
    void* fixed = nullptr;  // data that never moves (weights); null: given to Run()
  };

  // The primitive must have been made with user scratchpad mode; the scratchpad is an argument like
  // any other. Adds to KernelMemory.
  DnnlCall(const dnnl::primitive& primitive, std::vector<Argument> arguments);
  ~DnnlCall();
  DnnlCall(const DnnlCall&) = delete;
  DnnlCall& operator=(const DnnlCall&) = delete;

  // data[i] is for the i-th argument that is not fixed. Thread-safe where worker numbers differ.
  Status Run(int worker, std::span<const void* const> data) const;

 private:
  struct Slot;  // the memory objects of one run at a time
  // Kept; where more workers run the primitive at once, those of the others are made for each run.
  static constexpr int kSlots = 4;

  std::unique_ptr<Slot> MakeSlot() const;
  Status Execute(Slot& slot, std::span<const void* const> data) const;

  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  mutable std::array<std::atomic<Slot*>, kSlots> slots_{};  // not in use
};

// Calls f, which returns a StatusOr, turning oneDNN's exceptions into errors: kUnimplemented where
// it has no implementation, OutOfMemory() where it found none.
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
