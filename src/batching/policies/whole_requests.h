// Common part of the policies for models that run as a whole, with inputs of varying length. A
// request is one node. If it has more rows than a batch takes, it is several nodes that grow one
// after the other.
//
// A worker has one task at a time, formed when it asks, so that requests that arrive meanwhile can
// still join. Nodes of one type wait in one queue, in an order that the policy sets. The type whose
// queue starts with the earliest node is served first. A derived policy adds the order, and which
// nodes of a queue form a batch.
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
  // Its place in the order, then its sequence number of becoming ready.
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
    Place place = {};
    bool queued = false;
    Entries::iterator at{};  // in its queue, while it waits
  };
  struct Queue {
    Entries entries;
    int64_t size = 0;  // of all entries
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
  // By worker: its task.
  const absl::flat_hash_map<WorkerId, Work>& busy() const { return busy_; }
  // The first waiting node. At least one node must wait.
  const Entry& first() const { return *queues_.at(heads_.begin()->second).entries.begin()->second; }

  const PolicyOptions options_;

 private:
  std::optional<Task> NextTask(WorkerId worker) final;
  void Ready(std::span<const Member> nodes) final;
  void Gone(Slot slot) final;
  void Ended(const Running& task) final { busy_.erase(task.worker); }
  std::optional<TimePoint> FormsAt(TimePoint now) const final;

  // The nodes of a request.
  struct Nodes {
    Entry first;
    std::deque<Entry> others;
    uint64_t order = 0;  // the highest place in the order that any of its nodes had
  };

  Entry& EntryOf(Member member);
  void Unqueue(Entry& entry);
  void EraseIfEmpty(CellType type);

  std::deque<Nodes> nodes_;                     // by slot
  uint64_t ready_ = 0;                          // sequence number of nodes that become ready
  std::map<CellType, Queue> queues_;            // only non-empty queues
  std::set<std::pair<Place, CellType>> heads_;  // the first entry of every queue
  absl::flat_hash_map<WorkerId, Work> busy_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_
