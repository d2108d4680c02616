// Records the tasks that the workers run while it is on, and returns them as a timeline.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_TRACE_H_
#define CHAIRLIFT_ENGINE_EXECUTION_TRACE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "batching/scheduler.h"
#include "chairlift/engine.h"
#include "runtime/node_timer.h"

namespace chairlift {

// The nodes that one task ran. Thread-compatible.
class NodeRuns final : public NodeTimer {
 public:
  struct Run {
    int32_t profile = 0;  // index into profiles()
    TimePoint start, end;
  };

  // Keeps at most `max_bytes`, or nothing at all.
  explicit NodeRuns(size_t max_bytes) : max_bytes_(max_bytes) {}

  void Report(const PlannedNode& planned, TimePoint start, TimePoint end) override;
  // `what`: without times, model and cell.
  void Add(NodeProfile what, TimePoint start, TimePoint end);

  bool complete() const { return complete_; }  // if false, some did not fit and all were dropped
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<NodeProfile>& profiles() const { return profiles_; }
  size_t byte_size() const { return runs_.size() * sizeof(Run) + profile_bytes_; }

 private:
  const size_t max_bytes_;
  bool complete_ = true;
  std::vector<Run> runs_;
  std::map<std::string, int32_t> profile_numbers_;  // by everything that distinguishes profiles
  std::vector<NodeProfile> profiles_;
  size_t profile_bytes_ = 0;  // approximate size of the two above
};

// Thread-safe.
class TraceRecorder {
 public:
  // `model`: model name and version. `cell` is empty if the model runs as a whole.
  struct Slice {
    const std::string& model;
    const std::string& cell;
    const Task& task;
    bool helped = false;   // other workers ran parts of it
    bool in_lane = false;  // its worker is a lane of the model (Program::lanes)
    TimePoint start, end;
  };

  // Drops earlier records and records tasks that start from `now` on, as many as fit.
  void Start(const TraceOptions& options, TimePoint now);
  // Whether recording is on: a single load.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Bytes that the nodes of a task may take; 0: nodes are not recorded. A single load.
  size_t node_bytes() const { return node_bytes_.load(std::memory_order_relaxed); }
  void Record(const Slice& slice, const NodeRuns* nodes = nullptr);
  // Stops recording and returns the records.
  Trace Stop(int workers);

 private:
  struct Event {
    int32_t name = 0;  // index into names_
    int16_t worker = 0;
    bool helped = false;
    bool in_lane = false;
    int32_t rows = 0;
    int32_t steps = 1;
    int32_t cells = 0;  // total rows of all steps
    int32_t padding_rows = 0;
    int32_t requests = 0;  // how many entries of requests_, after those of earlier events
    // How many entries of node_events_, after those of earlier events.
    int32_t nodes = 0;
    int64_t start_ns = 0, ns = 0;  // since the recording's start
  };
  using Name = std::pair<std::string, std::string>;  // model, cell
  struct NodeEvent {
    int32_t profile = 0;  // index into profiles_
    int64_t start_ns = 0, ns = 0;
  };

  static int TrackOf(const Event& event);  // in the timeline
  void Append(const Slice& slice, const NodeRuns* nodes);
  void AppendNodes(const Slice& slice, const NodeRuns& nodes);
  // The profiles, with times from the recorded tasks.
  std::vector<NodeProfile> Profiles() const;

  std::atomic<bool> on_{false};
  std::atomic<size_t> node_bytes_{0};
  std::mutex mutex_;
  // Everything below is guarded by mutex_.
  TimePoint start_;
  size_t max_bytes_ = 0;
  std::map<Name, int32_t> numbers_;
  std::vector<Name> names_;
  std::deque<Event> events_;
  std::deque<BatchRequestId> requests_;
  std::map<std::string, int32_t> profile_numbers_;  // by everything that distinguishes profiles
  std::vector<NodeProfile> profiles_;
  size_t profile_bytes_ = 0;  // approximate size of the two above
  std::deque<NodeEvent> node_events_;
  std::vector<BatchRequestId> distinct_;  // of one task; kept for reuse
  uint64_t dropped_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_TRACE_H_
