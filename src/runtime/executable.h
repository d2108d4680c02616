// A model that can run: graph, packed weights, and one plan per shape class.
//
// A *shape class* is the concrete shapes of all inputs together with the width (workers) the plan
// is made for. The first request of a class pays for its plan: shapes inferred, shape computations
// folded, layouts fixed, kernels compiled, memory planned. Later ones only run it.
#ifndef CHAIRLIFT_RUNTIME_EXECUTABLE_H_
#define CHAIRLIFT_RUNTIME_EXECUTABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/team.h"
#include "graph/ir.h"
#include "graph/passes/pass.h"
#include "runtime/memory_planner.h"

namespace chairlift {

// The memory one worker computes in, as large as the largest plan of late: what has been of no use
// for some dozens of runs goes back to the system. One per worker, used by one thread at a time.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // At least `bytes`, 64-byte aligned, on huge pages where granted; null where the system has no
  // more. What was written stays, but where it has to grow, earlier pointers become invalid.
  std::byte* Reserve(size_t bytes);
  size_t capacity() const { return capacity_; }
  // Of that, what may be backed by memory.
  size_t held_bytes() const { return held_; }
  bool Contains(const void* p) const {
    return std::less_equal<const void*>()(data_, p) &&
           std::less<const void*>()(p, data_ + capacity_);
  }
  // The arena of the control flow bodies that run while this one is in use.
  Arena& Nested();
  // Room for a step's pointers, kept from run to run.
  std::vector<const void*>& input_pointers() { return input_pointers_; }
  std::vector<void*>& output_pointers() { return output_pointers_; }

 private:
  void ReleaseUnused(size_t bytes);

  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
  size_t held_ = 0;
  size_t recent_ = 0;  // the most that was asked for, of the last `asked_` times
  int asked_ = 0;
  std::unique_ptr<Arena> nested_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
};

struct SymbolicSpec {
  std::string name;
  DType dtype = DType::kUndefined;
  SymbolicShape shape;
};

struct ExecutableOptions {
  std::set<std::string> disabled_passes = {};
  // What the plans kept may hold; beyond, the least recently used shape class goes first.
  int64_t max_plan_bytes = int64_t{64} << 20;
};

// Told of every step of every run while it is set: what `profile` and `inspect` measure with.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Called on the worker's thread, after the step. `output` is the step's first output.
  virtual void OnStep(const Node& node, const TensorDesc& output,
                      std::chrono::nanoseconds time) = 0;
};

struct PlanStats {
  int steps = 0;
  int folded_nodes = 0;     // computed once per shape class
  int late_nodes = 0;       // shapes known only at run time
  size_t arena_bytes = 0;   // planned
  size_t tensor_bytes = 0;  // what every intermediate in a place of its own would take
  int64_t held_bytes = 0;   // estimated, while the plan is kept: kernels, values of the class
  // What shares the arena: intermediates and the kernels' scratch, by the steps that use them.
  std::vector<MemoryRecord> records = {};
};

// Thread-safe once created.
class Executable {
 public:
  // Runs the passes and makes the plan for the likeliest shapes: Unimplemented where a node cannot
  // be compiled.
  static StatusOr<std::unique_ptr<Executable>> Create(Graph graph,
                                                      const ExecutableOptions& options);
  ~Executable();

  const std::vector<SymbolicSpec>& inputs() const;
  const std::vector<SymbolicSpec>& outputs() const;
  const Graph& graph() const;  // after the passes
  const std::vector<PassReport>& pass_reports() const;

  // Runs once. inputs[i] matches inputs()[i] in type and shape (checked: InvalidArgument names the
  // input); outputs are new tensors. `team` is the calling worker's, and the plan is made for
  // team.width() workers.
  StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs, Team& team, int worker,
                                    Arena& arena);

  // Makes (or finds) the plan for these input shapes without running it.
  StatusOr<PlanStats> Prepare(std::span<const Shape> input_shapes, int width);

  // Null switches it off. It must outlive every run that began while it was set.
  void SetObserver(StepObserver* observer);

  size_t weight_bytes() const;  // constants and their packed forms

 private:
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_EXECUTABLE_H_
