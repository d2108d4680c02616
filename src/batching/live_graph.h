// A request's cell graph while it runs: the pending dependencies of each node, and its subgraphs.
#ifndef CHAIRLIFT_BATCHING_LIVE_GRAPH_H_
#define CHAIRLIFT_BATCHING_LIVE_GRAPH_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "batching/scheduler.h"

namespace chairlift {

inline constexpr WorkerId kNoWorker = -1;
inline constexpr WorkerId kSeveralWorkers = -2;

// A run of nodes (CellGraph::Run), or a part of one. Its pending dependencies and its readiness are
// those of its next node: the first that is in no task.
struct LiveNode {
  enum class State : uint8_t { kWaiting, kReady, kInFlight, kComplete };

  CellType type = 0;
  int32_t rows = 1;
  int32_t first = 0;     // its first node's number in the request
  int32_t count = 1;     // nodes
  int32_t given = 0;     // how many of these have been in a task
  int32_t complete = 0;  // how many of these have run
  int32_t subgraph = 0;
  int32_t first_edge = -1;   // head of the list of nodes that read from its last node
  int32_t next_ready = -1;   // in the list of its subgraph
  int32_t follower = -1;     // the run that follows it (CellGraph::Add)
  int32_t not_given = 0;     // dependencies that are in no task yet
  int32_t not_complete = 0;  // dependencies that are not complete
  // While it is in flight: the worker that it runs on. Before: the worker of its dependencies that
  // are in flight; valid while not_complete > not_given.
  WorkerId worker = kNoWorker;
  State state = State::kWaiting;  // in flight: all of its nodes are in tasks
  bool tied = false;              // ready, but only on `worker`
  bool divisible = false;         // a task may take only some of its rows

  // What it adds to a task's size: even a node of no rows takes one place.
  int32_t size() const { return rows > 1 ? rows : 1; }
  // The number of the next node to run.
  int32_t next() const { return first + given; }
};

// A maximal connected set of nodes of one type (BatchMaker §4.3), for policies that keep such a set
// on one worker. The policy maintains its node list and pins.
struct Subgraph {
  CellType type = 0;
  int32_t first_node = 0;    // index in LiveGraph::nodes
  int32_t first_ready = -1;  // ready nodes, in order of readiness
  int32_t last_ready = -1;
  int32_t ready_size = 0;  // sum of their sizes
  // Counts nodes in flight, and ready nodes that read from nodes in flight. While it is positive,
  // the subgraph belongs to worker `pinned`.
  int32_t pins = 0;
  WorkerId pinned = kNoWorker;
  int32_t position = -1;  // in its type's queue
};

// Nodes here are runs, and only the last node of a run is read from outside it. A run of the
// request is divided where other nodes read from its middle. Reusable: no allocation once its
// vectors have grown.
struct LiveGraph {
  struct Edge {
    int32_t to;
    int32_t next;  // edge, or -1
  };

  int32_t unfinished = 0;  // runs not complete
  int32_t size = 0;        // nodes of all runs, counted as the request counts them
  std::vector<LiveNode> nodes;
  std::vector<Edge> edges;
  std::vector<Subgraph> subgraphs;  // by first_node
  std::vector<int32_t> roots;       // nodes without dependencies

  void Assign(const CellGraph& graph);
  void Swap(LiveGraph& other);
  // Adds a run of a growth. It joins the subgraph of the first dependency of its type, or starts a
  // new one. Returns its index. If it reads from the middle of a live run, it waits for that whole
  // run.
  int32_t Append(const CellGraph::Run& run);
  // The index of the run that contains a node.
  int32_t EntryOf(int32_t node) const;

  // How many steps, at most `most`, a task on `worker` can run from a node that it may take. Each
  // further step must depend only on the step before and on nodes that run earlier on that worker.
  int32_t Steps(int32_t node, WorkerId worker, int32_t most) const;

  // Marks the next `steps` nodes, of this run and those that follow it, as being in a task. Calls
  // offer(run) for each run whose next node now waits only for nodes in tasks.
  template <typename Offer>
  void Give(int32_t index, int32_t steps, WorkerId worker, Offer&& offer) {
    while (index >= 0) {
      LiveNode& node = nodes[index];
      const int32_t taken = std::min(steps, node.count - node.given);
      steps -= taken;
      node.given += taken;
      node.worker = worker;
      if (node.given < node.count) {
        node.state = LiveNode::State::kWaiting;
        node.not_given = 0;
        node.not_complete = 1;
        return offer(index);
      }
      node.state = LiveNode::State::kInFlight;
      const int32_t next = steps > 0 ? node.follower : -1;
      for (int32_t edge = node.first_edge; edge >= 0; edge = edges[edge].next) {
        LiveNode& reader = nodes[edges[edge].to];
        const bool first = reader.not_complete == reader.not_given;
        reader.worker = first || reader.worker == worker ? worker : kSeveralWorkers;
        if (--reader.not_given == 0 && edges[edge].to != next) offer(edges[edge].to);
      }
      index = next;
    }
  }
  // Marks the next `steps` incomplete nodes as complete: their task has ended. Calls offer(run) for
  // each run whose next node has no pending dependency and is in no task.
  template <typename Offer>
  void End(int32_t index, int32_t steps, Offer&& offer) {
    while (index >= 0) {
      LiveNode& node = nodes[index];
      const int32_t ended = std::min(steps, node.given - node.complete);
      steps -= ended;
      node.complete += ended;
      if (node.complete < node.count) {
        if (node.complete < node.given) return;
        node.not_complete = 0;
        return offer(index);
      }
      node.state = LiveNode::State::kComplete;
      --unfinished;
      for (int32_t edge = node.first_edge; edge >= 0; edge = edges[edge].next) {
        LiveNode& reader = nodes[edges[edge].to];
        if (reader.given > 0) continue;
        if (--reader.not_complete == 0) offer(edges[edge].to);
      }
      index = steps > 0 ? node.follower : -1;
    }
  }

  // Appends a ready node to its subgraph's list.
  void PushReady(int32_t node);
  // Removes the first node of the list, which must not be empty.
  int32_t PopReady(Subgraph& subgraph);

 private:
  // Adds the part of a run up to and including node `last`; it reads from `dependencies`.
  void AddPiece(const CellGraph::Run& run, int32_t first, int32_t last,
                std::span<const int32_t> dependencies, int32_t follows);
  // Finds nodes inside runs that are read by nodes other than their followers.
  void FindCuts(const CellGraph& graph);

  std::vector<int32_t> cuts_;  // sorted; used by Assign()
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LIVE_GRAPH_H_
