// What policies share for models that run as a whole, of varying length. A request is one node, or,
// where it has more rows than a batch takes, several that grow one after the other.
//
// A worker has one task at a time, bound when it asks, so that who comes meanwhile can still join.
// Nodes of one type wait in one queue, in an order that the policy sets; the type at whose head the
// earliest node stands is served first. What a policy adds: the order, and which nodes of a queue
// make a batch.
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
  // Its place in the order, then its number in the order in which nodes became ready.
  using Place = std::pair<uint64_t, uint64_t>;
  struct Entry;
  using Entries = std::map<Place, Entry*>;
  // A node that waits.
  struct Entry {
    Member node{kNoSlot, 0};
    TimePoint ready_at{};
    CellType type = 0;
    int32_t size = 1;
    int32_t length = 0;  // of its request
    Place place = {};
    bool queued = false;
    Entries::iterator at{};  // in its queue, while it is queued
  };
  struct Queue {
    Entries entries;
    int64_t size = 0;  // of all of them
  };
  struct Work {
    CellType type = 0;
    int32_t rows = 0;
    bool by_team = false;
    TimePoint start{};
  };

  // Where a node that has become ready is to stand, the lowest first; equals stand in the order in
  // which they became ready. No request of a client stands before an earlier one of the same
  // client, whatever this says.
  virtual uint64_t OrderOf(const Entry& /*node*/) { return 0; }
  // Takes nodes out of a queue, which is not empty, by Take(); those of a request that is held must
  // stay. Returns them, or nothing where they are to wait.
  virtual std::vector<Member> Form(CellType type, const Queue& queue) = 0;
  // Whether a worker that has no task had better help with one that runs than begin another.
  virtual bool BetterToHelp() const { return false; }
  // Whether the task that Form() has just taken is for all workers together.
  virtual bool by_team() const { return false; }
  // Whether batches are padded to the longest in them.
  virtual bool pads() const = 0;
  // When Form() may take what it does not take now, if nothing happens.
  virtual std::optional<TimePoint> FormAt(CellType /*type*/, const Queue& /*queue*/) const {
    return std::nullopt;
  }
  // Nodes have joined or left it; it may be empty now.
  virtual void Changed(CellType /*type*/, const Queue& /*queue*/) {}

  bool held(const Entry& entry) const { return request(entry.node.slot).held(); }
  // Its request starts: the next one of its client, which comes after it, is held no more.
  Member Take(Entry& entry);
  // By worker, what it has.
  const absl::flat_hash_map<WorkerId, Work>& busy() const { return busy_; }
  // Of all that wait, the first. There is one.
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
    uint64_t order = 0;  // the last place in the order that any of them had
  };

  Entry& EntryOf(Member member);
  void Unqueue(Entry& entry);
  void EraseIfEmpty(CellType type);

  std::deque<Nodes> nodes_;                     // by slot
  uint64_t ready_ = 0;                          // numbers nodes in the order they become ready
  std::map<CellType, Queue> queues_;            // none is empty
  std::set<std::pair<Place, CellType>> heads_;  // of every queue
  absl::flat_hash_map<WorkerId, Work> busy_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_WHOLE_REQUESTS_H_
