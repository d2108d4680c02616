// Common part of the policies for models that run as a whole, with inputs of varying length. A
// request is one node. If it has more rows than a batch takes, it is several nodes that grow one
// after the other.
//
// A worker has one task at a time, bound when it asks, so that later requests can still join.
// Nodes of one type wait in one queue, in an order that the policy sets; the type at whose head the
// earliest node stands is served first. What a policy adds: the order, and which nodes of a queue
// make a batch.
//
// If the policy has requests take turns, one node of each turn (CellGraph::turn; a request without
// one has its own) is in the queue of its type, and the others wait in line behind it. The next one
// joins the queue when that one has been taken. So a request of many nodes has one node in each
// queue, and no request waits behind all of its nodes. If no other request waits, its batches are
// as full as without turns.
#ifndef CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_
#define CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "batching/policy.h"
#include "batching/request_table.h"

namespace chairlift {

class WholeRequestScheduler : public RequestTable {
 public:
  explicit WholeRequestScheduler(const PolicyOptions& options)
      : RequestTable({}), options_(options) {}

 protected:
  // The place in the order, then the number of the node in the order in which nodes became ready.
  using Place = std::pair<uint64_t, uint64_t>;
  struct Entry;
  using Entries = std::map<Place, Entry*>;
  // A waiting node.
  struct Entry {
    Member node{kNoSlot, 0};
    TimePoint ready_at{};
    CellType type = 0;
    int32_t size = 1;
    int32_t length = 0;  // of its request
    uint64_t ready = 0;  // its number in the order in which nodes became ready
    Place place = {};
    bool queued = false;
    Entries::iterator at{};  // in its queue, while it is queued
    bool in_line = false;    // it takes turns, as part of `turn`
    uint64_t turn = 0;
  };
  struct Queue {
    Entries entries;
    int64_t size = 0;  // of its entries and of the nodes in line behind them
  };
  struct Work {
    CellType type = 0;
    int32_t rows = 0;
    bool by_team = false;
    TimePoint start{};
  };

  // The place of a node that has become ready, lowest first; equal places are in the order in which
  // nodes became ready. A client's requests always stay in order of arrival, whatever this returns.
  virtual uint64_t OrderOf(const Entry& /*node*/) { return 0; }
  // Takes nodes from a non-empty queue with Take(); nodes of a held request must stay. Returns
  // them, or nothing if they are to wait.
  virtual std::vector<Member> Form(CellType type, const Queue& queue) = 0;
  // Whether an idle worker should help with a running task instead of starting another.
  virtual bool BetterToHelp() const { return false; }
  // Whether the task that Form() has just taken is for all workers together.
  virtual bool by_team() const { return false; }
  // Whether batches are padded to their longest request.
  virtual bool pads() const = 0;
  // When Form() may take nodes that it does not take now, if nothing else happens.
  virtual std::optional<TimePoint> FormAt(CellType /*type*/, const Queue& /*queue*/) const {
    return std::nullopt;
  }
  // Called when nodes have been added or removed; the queue may be empty.
  virtual void Changed(CellType /*type*/, const Queue& /*queue*/) {}

  bool held(const Entry& entry) const { return request(entry.node.slot).held(); }
  // Starts its request, which releases the client's next one, placed after it.
  Member Take(Entry& entry);
  // The node that moved from a line into the queue when Take() last took a node; null: none did.
  const Entry* follower() const { return follower_; }
  // The running task of each busy worker.
  const absl::flat_hash_map<WorkerId, Work>& busy() const { return busy_; }
  // The first waiting node. At least one node must wait.
  const Entry& first() const { return *queues_.at(heads_.begin()->second).entries.begin()->second; }

  const PolicyOptions options_;

 private:
  // Nodes of one turn and type: one is in its queue, the others wait, by when they became ready.
  using Line = std::map<uint64_t, Entry*>;

  void Arrived(Slot slot, const CellGraph& graph) final;
  std::optional<Task> NextTask(WorkerId worker) final;
  void Ready(std::span<const Member> nodes) final;
  void Gone(Slot slot) final;
  void Ended(const Running& task) final { busy_.erase(task.worker); }
  std::optional<TimePoint> FormsAt(TimePoint now) const final;

  // The nodes of a request.
  struct Nodes {
    Entry first;
    std::deque<Entry> others;
    uint64_t order = 0;  // the last place in the order that any of them had
    uint64_t turn = 0;   // CellGraph::turn
  };

  Entry& EntryOf(Member member);
  // Adds a node to its queue, at its place in the order.
  void Enqueue(Entry& entry);
  // Removes a node from its queue. The next node in its line, if any, joins the queue.
  void Unqueue(Entry& entry);
  // Removes a node from its line.
  void LeaveLine(Entry& entry);
  void EraseIfEmpty(CellType type);

  std::deque<Nodes> nodes_;                     // by slot
  uint64_t ready_ = 0;                          // numbers nodes in the order they become ready
  std::map<CellType, Queue> queues_;            // none is empty
  std::set<std::pair<Place, CellType>> heads_;  // of every queue
  absl::flat_hash_map<std::pair<uint64_t, CellType>, Line> lines_;  // behind a node that is queued
  const Entry* follower_ = nullptr;
  absl::flat_hash_map<WorkerId, Work> busy_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_
