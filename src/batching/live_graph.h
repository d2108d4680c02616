// A request's cell graph while it runs: what each node waits for, and its subgraphs.
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

// A run of nodes (CellGraph::Run), or one. What it waits for, and whether it is ready, is said of
// its next node: the first that is in no task.
struct LiveNode {
  enum class State : uint8_t { kWaiting, kReady, kInFlight, kComplete };

  CellType type = 0;
  int32_t rows = 1;
  int32_t first = 0;     // its first node's number, as the request has it
  int32_t count = 1;     // nodes
  int32_t given = 0;     // of these, that have been in a task
  int32_t complete = 0;  // and that have run
  int32_t subgraph = 0;
  int32_t first_edge = -1;   // of the list of those that read from its last node
  int32_t next_ready = -1;   // in its subgraph's list
  int32_t follower = -1;     // the run that follows it (CellGraph::Add)
  int32_t not_given = 0;     // dependencies not in any task yet
  int32_t not_complete = 0;  // dependencies not complete
  // In flight: where. Before: where dependencies are in flight; holds while
  // not_complete > not_given.
  WorkerId worker = kNoWorker;
  State state = State::kWaiting;  // in flight: all of it has been given
  bool tied = false;              // ready, but only on `worker`
  bool divisible = false;         // a task may take some of its rows only

  // What it takes of a task's size: a node of no rows still takes a place.
  int32_t size() const { return rows > 1 ? rows : 1; }
  // The number of its next node.
  int32_t next() const { return first + given; }
};

// A maximal connected set of nodes of one type (BatchMaker §4.3), for policies that keep one on one
// worker. Its node list and pins are the policy's.
struct Subgraph {
  CellType type = 0;
  int32_t first_node = 0;    // LiveGraph::nodes has it there
  int32_t first_ready = -1;  // ready nodes, in order of readiness
  int32_t last_ready = -1;
  int32_t ready_size = 0;  // of those together
  // Nodes in flight, and ready nodes that read from some in flight: while there are any, the
  // subgraph belongs to `pinned`.
  int32_t pins = 0;
  WorkerId pinned = kNoWorker;
  int32_t position = -1;  // in its type's queue
};

// Nodes here are runs of them, none of which is read from but for its last node: what arrives as
// one run is several where others read from the middle. Made to be used again: no allocation once
// its vectors have grown.
struct LiveGraph {
  struct Edge {
    int32_t to;
    int32_t next;  // edge, or -1
  };

  int32_t unfinished = 0;  // runs not complete
  int32_t size = 0;        // nodes of all runs, as the request numbers them
  std::vector<LiveNode> nodes;
  std::vector<Edge> edges;
  std::vector<Subgraph> subgraphs;  // by first_node
  std::vector<int32_t> roots;       // nodes that read from none

  void Assign(const CellGraph& graph);
  void Swap(LiveGraph& other);
  // A run of a growth: joins the subgraph of the first dependency of its type, or makes its own.
  // Returns its place. Where it reads from the middle of a run that is under way, it waits for all
  // of that.
  int32_t Append(const CellGraph::Run& run);
  // The place of the run that a node is of.
  int32_t EntryOf(int32_t node) const;

  // How many steps a task on `worker` may run from a node that it may take, `most` at most: each of
  // the further ones waits for nothing but the step before and what runs earlier on that worker.
  int32_t Steps(int32_t node, WorkerId worker, int32_t most) const;

  // The next `steps` nodes, of this run and of those that follow it, are in a task now. Calls
  // offer(run) for each whose next node waits for nothing but tasks.
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
  // The task has ended that the next `steps` nodes were in that are not complete. Calls offer(run)
  // for each whose next node waits for nothing any more and is in no task.
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

  // The node is ready: the last of its subgraph's list.
  void PushReady(int32_t node);
  // From the front of the list, which must not be empty.
  int32_t PopReady(Subgraph& subgraph);

 private:
  // Adds what a run begins with, up to and with node `last`; it reads from `dependencies`.
  void AddPiece(const CellGraph::Run& run, int32_t first, int32_t last,
                std::span<const int32_t> dependencies, int32_t follows);
  // Nodes of runs that something reads from which does not follow them.
  void FindCuts(const CellGraph& graph);

  std::vector<int32_t> cuts_;  // in order; used by Assign()
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LIVE_GRAPH_H_
