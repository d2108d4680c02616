// A request's cell graph while it runs: what each node waits for, and its subgraphs.
#ifndef CHAIRLIFT_BATCHING_LIVE_REQUEST_H_
#define CHAIRLIFT_BATCHING_LIVE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "batching/scheduler.h"

namespace chairlift {

inline constexpr WorkerId kNoWorker = -1;
inline constexpr WorkerId kSeveralWorkers = -2;

struct LiveNode {
  enum class State : uint8_t { kWaiting, kReady, kInFlight, kComplete };

  CellType type = 0;
  int32_t rows = 1;
  int32_t subgraph = 0;
  int32_t first_edge = -1;   // of the list of those that read from it
  int32_t next_ready = -1;   // in its subgraph's list
  int32_t not_given = 0;     // dependencies not in any task yet
  int32_t not_complete = 0;  // dependencies not complete
  // The worker on which dependencies are in flight; holds while not_complete > not_given.
  WorkerId tie = kNoWorker;
  State state = State::kWaiting;
  bool tied = false;  // ready, but only on the worker `tie`

  // What it takes of a task's size: a node of no rows still takes a place.
  int32_t size() const { return rows > 1 ? rows : 1; }
};

// A maximal connected set of nodes of one type (BatchMaker §4.3). All its nodes that are in flight
// are so on one worker.
struct Subgraph {
  CellType type = 0;
  int32_t first_ready = -1;  // ready nodes, in order of readiness
  int32_t last_ready = -1;
  int32_t ready_size = 0;  // of those together
  // Nodes in flight, and ready nodes that read from some in flight: while there are any, the
  // subgraph belongs to `pinned`.
  int32_t pins = 0;
  WorkerId pinned = kNoWorker;
  int32_t position = -1;  // in its type's queue
};

// Plain data; its scheduler keeps it consistent. Made to be used again: no allocation once its
// vectors have grown.
struct LiveRequest {
  struct Edge {
    int32_t to;
    int32_t next;  // edge, or -1
  };

  BatchRequestId id = 0;
  ClientId client = 0;
  std::optional<TimePoint> deadline;
  bool held = false;     // an earlier request of its client has not started
  bool started = false;  // some node has been given out
  bool leaving = false;  // cancelled or expired, with nodes in flight
  bool expired = false;
  int32_t unfinished = 0;  // nodes not complete
  int32_t in_flight = 0;
  std::vector<LiveNode> nodes;
  std::vector<Edge> edges;
  std::vector<Subgraph> subgraphs;

  void Assign(const CellGraph& graph);
  // Exchanges what Assign() made.
  void SwapGraphs(LiveRequest& other);
  // A node of a growth: joins the subgraph of the first dependency of its type, or makes its own.
  // Returns its number.
  int32_t Append(CellType type, int32_t rows, std::span<const int32_t> dependencies);

  void PushReady(int32_t node);
  // From the front of the list, which must not be empty.
  int32_t PopReady(Subgraph& subgraph);

 private:
  void AddNode(CellType type, int32_t rows, std::span<const int32_t> dependencies);

  std::vector<int32_t> parents_;  // while subgraphs are found
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LIVE_REQUEST_H_
