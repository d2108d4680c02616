// A request's cell graph while it runs: what each node waits for, and its subgraphs.
#ifndef CHAIRLIFT_BATCHING_LIVE_GRAPH_H_
#define CHAIRLIFT_BATCHING_LIVE_GRAPH_H_

#include <cstdint>
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
  int32_t follower = -1;     // the node that follows it (CellGraph::Add)
  int32_t not_given = 0;     // dependencies not in any task yet
  int32_t not_complete = 0;  // dependencies not complete
  // In flight: where. Before: where dependencies are in flight; holds while
  // not_complete > not_given.
  WorkerId worker = kNoWorker;
  State state = State::kWaiting;
  bool tied = false;  // ready, but only on `worker`

  // What it takes of a task's size: a node of no rows still takes a place.
  int32_t size() const { return rows > 1 ? rows : 1; }
};

// A maximal connected set of nodes of one type (BatchMaker §4.3), for policies that keep one on one
// worker. Its node list and pins are the policy's.
struct Subgraph {
  CellType type = 0;
  int32_t first_node = 0;
  int32_t first_ready = -1;  // ready nodes, in order of readiness
  int32_t last_ready = -1;
  int32_t ready_size = 0;  // of those together
  // Nodes in flight, and ready nodes that read from some in flight: while there are any, the
  // subgraph belongs to `pinned`.
  int32_t pins = 0;
  WorkerId pinned = kNoWorker;
  int32_t position = -1;  // in its type's queue
};

// Made to be used again: no allocation once its vectors have grown.
struct LiveGraph {
  struct Edge {
    int32_t to;
    int32_t next;  // edge, or -1
  };

  int32_t unfinished = 0;  // nodes not complete
  std::vector<LiveNode> nodes;
  std::vector<Edge> edges;
  std::vector<Subgraph> subgraphs;  // by first_node
  std::vector<int32_t> roots;       // nodes that read from none

  void Assign(const CellGraph& graph);
  void Swap(LiveGraph& other);
  // A node of a growth: joins the subgraph of the first dependency of its type, or makes its own.
  // Returns its number.
  int32_t Append(CellType type, int32_t rows, std::span<const int32_t> dependencies,
                 int32_t follows);

  // How many steps a task on `worker` may run from a node that it may take, `most` at most: each of
  // the further ones waits for nothing but the step before and what runs earlier on that worker.
  int32_t Steps(int32_t node, WorkerId worker, int32_t most) const;

  // Calls visit(node, the one that follows it in the task, or −1) for a node and those that follow
  // it, `steps` in all.
  template <typename Visit>
  void ForEachStep(int32_t index, int32_t steps, Visit&& visit) {
    for (; steps > 0; --steps) {
      const int32_t next = steps > 1 ? nodes[index].follower : -1;
      visit(index, next);
      index = next;
    }
  }

  // The node is in a task now. Calls offer(reader) for each that waits for nothing but tasks.
  template <typename Offer>
  void Give(int32_t index, WorkerId worker, Offer&& offer) {
    LiveNode& node = nodes[index];
    node.state = LiveNode::State::kInFlight;
    node.worker = worker;
    for (int32_t edge = node.first_edge; edge >= 0; edge = edges[edge].next) {
      LiveNode& reader = nodes[edges[edge].to];
      const bool first = reader.not_complete == reader.not_given;
      reader.worker = first || reader.worker == worker ? worker : kSeveralWorkers;
      if (--reader.not_given == 0) offer(edges[edge].to);
    }
  }
  // Its task has ended. Calls offer(reader) for each that waits for nothing any more and is in no
  // task.
  template <typename Offer>
  void End(int32_t index, Offer&& offer) {
    LiveNode& node = nodes[index];
    node.state = LiveNode::State::kComplete;
    --unfinished;
    for (int32_t edge = node.first_edge; edge >= 0; edge = edges[edge].next) {
      LiveNode& reader = nodes[edges[edge].to];
      if (--reader.not_complete > 0 || reader.state >= LiveNode::State::kInFlight) continue;
      offer(edges[edge].to);
    }
  }

  // The node is ready: the last of its subgraph's list.
  void PushReady(int32_t node);
  // From the front of the list, which must not be empty.
  int32_t PopReady(Subgraph& subgraph);

 private:
  void AddNode(CellType type, int32_t rows, std::span<const int32_t> dependencies, int32_t follows);
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LIVE_GRAPH_H_
