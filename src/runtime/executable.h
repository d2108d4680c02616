// A runnable model: graph, packed weights, and one plan per shape class.
//
// A *shape class* is the concrete shapes of all inputs together with the width (workers) of the
// plan. The first request of a class pays for its plan: shapes are inferred, shape computations
// folded, layouts fixed, kernels compiled and memory planned. Later requests only run it.
#ifndef CHAIRLIFT_RUNTIME_EXECUTABLE_H_
#define CHAIRLIFT_RUNTIME_EXECUTABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"
#include "graph/ir.h"
#include "graph/passes/pass.h"
#include "runtime/memory_planner.h"

namespace chairlift {

// The working memory of one worker, as large as the largest recent plan. Memory that was not used
// for some dozens of runs is returned to the system. One per worker, used by one thread at a time.
//
// The memory belongs to the device of one stream. All users run on that stream, in order, so
// several runs can be enqueued. The stream must outlive the arena.
class Arena {
 public:
  explicit Arena(Stream& stream = CpuStream());
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Stream& stream() const { return stream_; }
  // Bytes of intermediates and outputs that one run may have at the same time; unlimited by
  // default. A run that needs more is refused before it allocates.
  void set_limit(size_t bytes) { limit_ = bytes; }
  size_t limit() const { return limit_; }
  // At least `bytes`, 64-byte aligned, on huge pages if granted; null if the device is out of
  // memory. Keeps the contents. If the arena grows, earlier pointers are invalid for work that is
  // enqueued afterwards.
  std::byte* Reserve(size_t bytes);
  size_t capacity() const { return capacity_; }
  // The part of capacity() that may be backed by memory.
  size_t held_bytes() const { return held_; }
  // Call it between runs. If the arena was not used since the last call, releases its memory if
  // that is worthwhile. Its size and addresses stay; the contents are lost.
  void ReleaseIdle();
  bool Contains(const void* p) const {
    const std::byte* const data = this->data();
    return std::less_equal<const void*>()(data, p) && std::less<const void*>()(p, data + capacity_);
  }
  // The arena for control flow bodies, which run while this one is in use. Its limit is what this
  // arena leaves of its own limit.
  Arena& Nested();
  // The pointer lists of a step, kept to save allocations.
  std::vector<const void*>& input_pointers() { return input_pointers_; }
  std::vector<void*>& output_pointers() { return output_pointers_; }

 private:
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  bool Grow(size_t bytes);
  void ReleaseUnused(size_t bytes);

  Stream& stream_;
  std::shared_ptr<void> memory_;
  size_t capacity_ = 0;
  size_t held_ = 0;
  size_t limit_ = std::numeric_limits<size_t>::max();
  size_t in_use_ = 0;  // the last requested size
  size_t recent_ = 0;  // the largest of the last `asked_` requested sizes
  int asked_ = 0;
  bool idle_ = false;  // since the last ReleaseIdle()
  std::unique_ptr<Arena> nested_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
};

class NodeTimer;

// Set by another thread when the result of a run is no longer needed.
using StopFlag = std::atomic<bool>;

struct SymbolicSpec {
  std::string name;
  DType dtype = DType::kUndefined;
  SymbolicShape shape;
};

// Channel-blocked values have their stored shapes, [N, ceil(C/B), spatial…, B].
std::vector<SymbolicSpec> Specs(const Graph& graph, std::span<const ValueId> ids);

struct ExecutableOptions {
  std::set<std::string> disabled_passes = {};
  // Bytes of all kept plans together; the least recently used shape class is dropped first.
  int64_t max_plan_bytes = int64_t{64} << 20;
  Device* device = &CpuDevice();
  // After the passes, float32 values inside the model get this type (graph/narrow.h). kUndefined:
  // they stay float32.
  DType narrow_to = DType::kUndefined;
  // After the passes, products with constant float32 weights round their operands to this type,
  // kBFloat16 or kInt8 (graph/narrow_products.h). kUndefined: to none.
  DType round_products_to = DType::kUndefined;
  // The graph has already been through the passes, or is part of one that has: runs no pass.
  bool passed = false;
};

struct PlanStats {
  int steps = 0;
  int folded_nodes = 0;     // computed once per shape class
  int late_nodes = 0;       // shapes known only at run time
  size_t arena_bytes = 0;   // planned
  size_t tensor_bytes = 0;  // of all intermediates without memory reuse
  int64_t held_bytes = 0;   // estimated while the plan is kept: kernels, values of the class
  // The arena's intermediates and kernel scratch, with the steps that use them.
  std::vector<MemoryRecord> records = {};
  // For operators with several implementations: which was chosen, keyed as "Conv: onednn (winograd:
  // why it was refused)".
  struct KernelUse {
    int steps = 0;
    std::string first;  // the first node that uses it
    std::string taken;  // "onednn"
    // Earlier candidates, and why they were refused: "winograd: …; upsampling: …".
    std::string refused;
  };
  std::map<std::string, KernelUse> kernels = {};
};

// Thread-safe once created.
class Executable {
 public:
  // Runs the passes and makes the plan for the likeliest shapes. Unimplemented if a node cannot be
  // compiled for the device, or if its shapes depend on data on the device.
  static StatusOr<std::unique_ptr<Executable>> Create(Graph graph,
                                                      const ExecutableOptions& options);
  ~Executable();

  const std::vector<SymbolicSpec>& inputs() const;
  const std::vector<SymbolicSpec>& outputs() const;
  const Graph& graph() const;  // after the passes
  const std::vector<PassReport>& pass_reports() const;

  // On the CPU, runs before it returns. On another device, enqueues the run on the arena's stream:
  // the executable, and inputs that belong to other streams, must stay until the run has ended.
  //
  // inputs[i] must match inputs()[i] in type and shape and be in the device's memory; otherwise
  // InvalidArgument names the input. Outputs are new tensors there. `team` is the calling worker's;
  // the plan is made for team.width() workers. Once `stop` is set, the run ends before the next
  // operator, also in sub-graphs, with kCancelled. kOutOfRange if the run needs more than the
  // arena's limit. `timer` receives the time of each node.
  StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs, Team& team, int worker,
                                    Arena& arena, const StopFlag* stop = nullptr,
                                    NodeTimer* timer = nullptr);

  // Makes or finds the plan for these input shapes without running it.
  StatusOr<PlanStats> Prepare(std::span<const Shape> input_shapes, int width);

  const Device& device() const;
  size_t weight_bytes() const;  // constants and their packed forms

 private:
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_EXECUTABLE_H_
