// An accepted request, from admission to its response.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_REQUEST_H_
#define CHAIRLIFT_ENGINE_EXECUTION_REQUEST_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "batching/fair_share.h"
#include "batching/queue_time.h"
#include "batching/scheduler.h"
#include "chairlift/engine.h"
#include "engine/execution/admission.h"
#include "engine/execution/model.h"
#include "engine/programs/program.h"
#include "engine/requests/reply.h"
#include "engine/requests/statistics.h"

namespace chairlift {

// A running task as its requests see it.
struct Ride {
  int wanted = 0;        // nodes of requests that have not left; under the model's lock
  StopFlag stop{false};  // set when `wanted` reaches 0
};

struct Request {
  RequestId number = 0;  // for Cancel()
  std::string id;        // the caller's, returned in the response
  std::shared_ptr<Model> model;
  std::optional<std::chrono::microseconds> timeout;  // as requested
  TimePoint arrival;
  std::optional<TimePoint> deadline;
  std::optional<TimePoint> start_by;  // if it waits for state until then, it is refused
  Reply reply;
  bool inside = false;    // part of a request that was accepted before (ModelCalls)
  uint64_t turn = 0;      // CellGraph::turn
  bool has_turn = false;  // it is counted among ModelQueue::turns by itself, not by `admission`
  FairShare::Client caller;
  Duration expected_wait{0};  // expected when it was admitted, until its first task; 0: not known
  // The requests to other models that are expected of it, or of the request that it is part of.
  // Null if there are none, or if they are unknown.
  std::shared_ptr<Admission> admission;
  int64_t input_bytes = 0;
  Coming coming;  // its work here, until it is in the queue

  // Its graph; null until it has been unfolded.
  std::unique_ptr<RequestGraph> graph;

  // Used by the dispatcher, under the model's lock.
  std::vector<CellType> types;   // held while it is in the engine
  std::vector<CellType> closed;  // by cell: the type of nodes with an empty key
  // Types of other nodes, by cell and key.
  absl::flat_hash_map<std::pair<int, absl::InlinedVector<int64_t, 8>>, CellType> open;
  bool unfolding = false;          // another thread uses `graph` and `types`
  std::optional<TimePoint> start;  // when its first task started
  bool ran = false;                // one of its tasks has ended
  MeasuredCost cost;               // its part of its tasks
  int widest = 0;                  // rows of its largest batch
  StatisticsRecorder::Times times;
  Status leaving;  // the reason, once it must leave without an answer
  // A copy for its client that shares nothing: ThreadSanitizer does not see the reference counting
  // inside Abseil's library.
  Status Leaving() const { return {leaving.code(), leaving.message()}; }
  QueueTime::Share share;               // its part of the queue time
  bool answered = false;                // nodes of it may still run
  absl::InlinedVector<Ride*, 2> rides;  // one per running node, until the request must leave
};

bool IsLate(const Request& request, TimePoint now);
// The status of a request whose deadline has passed.
Status LateStatus(const Request& request);
// An error of the model. If an input has no elements, its name is added, because the error may be
// about what the model computes from it.
Status WithEmptyInput(const Request& request, Status failed);
// "70 µs" or "12.5 ms".
std::string TimeText(Duration time);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_REQUEST_H_
