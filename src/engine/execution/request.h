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

// A task that runs, as the requests that ride in it see it.
struct Ride {
  int wanted = 0;        // nodes of requests that have not left; under the model's lock
  StopFlag stop{false};  // set once that is 0
};

struct Request {
  RequestId number = 0;  // what Cancel() takes
  std::string id;        // the caller's, echoed
  std::shared_ptr<Model> model;
  std::optional<std::chrono::microseconds> timeout;  // as asked for
  TimePoint arrival;
  std::optional<TimePoint> deadline;
  Reply reply;
  bool inside = false;  // part of a request that was accepted before (ModelCalls)
  uint64_t turn = 0;    // CellGraph::turn
  FairShare::Client caller;
  // What it, and what it is part of, asks of other models. Null where that is nothing, or unknown.
  std::shared_ptr<Admission> admission;

  // What it was unfolded into; null until it has been.
  std::unique_ptr<RequestGraph> graph;

  // The dispatcher's, under the model's lock.
  std::vector<CellType> types;   // held while it is in the engine
  std::vector<CellType> closed;  // by cell: of its nodes with an empty key
  absl::flat_hash_map<std::pair<int, absl::InlinedVector<int64_t, 8>>, CellType> open;  // others'
  bool unfolding = false;          // another thread has `graph` and `types`
  std::optional<TimePoint> start;  // of its first task
  bool ran = false;                // some task of it has ended
  int widest = 0;                  // rows of the largest batch it rode in
  StatisticsRecorder::Times times;
  Status leaving;  // why it leaves unanswered, once it is known to
  // The same for its client, sharing nothing with it: ThreadSanitizer does not see how Abseil's
  // library counts.
  Status Leaving() const { return {leaving.code(), leaving.message()}; }
  QueueTime::Share share;               // of the queue's time
  bool answered = false;                // though nodes of it may still run
  absl::InlinedVector<Ride*, 2> rides;  // of each node in flight, until it is known to leave
};

bool IsLate(const Request& request, TimePoint now);
// Why a request leaves that is late while nodes of it run.
Status LateStatus();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_REQUEST_H_
