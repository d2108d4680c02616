// Reports how long each node of a run takes: for traces and profiles.
#ifndef CHAIRLIFT_RUNTIME_NODE_TIMER_H_
#define CHAIRLIFT_RUNTIME_NODE_TIMER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/plan.h"

namespace chairlift {

// A node as one plan runs it. Valid during NodeTimer::Report().
struct PlannedNode {
  const Node& node;
  const PlanStats::KernelUse* kernel;  // null where there is one implementation only
  const std::vector<Operand>& inputs;
  const std::vector<Operand>& outputs;
  // How often its bodies (If, Loop, Scan) ran, once it has run; null where it has none.
  const int64_t* body_runs = nullptr;
  double untouched_bytes = 0;  // of inputs (ReadsInPart)

  std::string Shapes() const;  // "[1,3,224,224], [64,3,7,7] -> [1,64,112,112]"
  double Flops() const;        // of products and convolutions; 0 for other operators
  // Of operands, each read or written once; of tables, what is looked up.
  double Bytes() const;
};

// Not thread-safe: one worker's.
class NodeTimer {
 public:
  virtual ~NodeTimer() = default;
  // The node ran in [start, end]. A node with bodies comes after their nodes, and spans them.
  virtual void Report(const PlannedNode& planned, TimePoint start, TimePoint end) = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_NODE_TIMER_H_
