// Reports the time of each node of a run, for traces and profiles.
#ifndef CHAIRLIFT_RUNTIME_NODE_TIMER_H_
#define CHAIRLIFT_RUNTIME_NODE_TIMER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/plan.h"

namespace chairlift {

// A node in one plan. Valid during NodeTimer::Report().
struct PlannedNode {
  const Node& node;
  const PlanStats::KernelUse* kernel;  // null if there is only one implementation
  const std::vector<Operand>& inputs;
  const std::vector<Operand>& outputs;
  // How often its bodies (If, Loop, Scan) ran, set after it has run; null if it has none.
  const int64_t* body_runs = nullptr;
  double untouched_bytes = 0;  // of inputs (ReadsInPart)

  std::string Shapes() const;  // "[1,3,224,224], [64,3,7,7] -> [1,64,112,112]"
  double Flops() const;        // of products and convolutions; 0 for other operators
  // Bytes of operands, each read or written once. For tables, only the rows that are looked up.
  double Bytes() const;
};

// Not thread-safe: belongs to one worker.
class NodeTimer {
 public:
  virtual ~NodeTimer() = default;
  // The node ran in [start, end]. A node with bodies is reported after their nodes and includes
  // their time.
  virtual void Report(const PlannedNode& planned, TimePoint start, TimePoint end) = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_NODE_TIMER_H_
