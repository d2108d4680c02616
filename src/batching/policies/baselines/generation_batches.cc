// The static and leave_only policies: requests that generate run in batches that accept no new
// requests. When the machine is free, all waiting requests, at most `max_batch_size`, form a batch.
// One task runs their prompts, padded to the longest; each later task runs one step of all.
//
// static: a batch keeps its number of rows to its end and all its answers are sent together, like a
// loop over a model with a cache. leave_only: a request leaves with its last token, and the batch
// narrows (as in CTranslate2).
//
// Memory: as in policy continuous, by CellGraph::state() and `state_capacity`.
#include <algorithm>
#include <map>

#include "batching/policies/baselines/baselines.h"
#include "batching/request_table.h"

namespace chairlift {
namespace {

class GenerationBatchScheduler final : public RequestTable {
 public:
  GenerationBatchScheduler(const PolicyOptions& options, bool leave)
      : RequestTable({.deadline_until_end = true, .first_reader_first = true}),
        options_(options),
        leave_(leave) {}

 private:
  void Arrived(Slot slot, const CellGraph& graph) override {
    queue_.emplace(request(slot).arrival, Waiting{slot, graph.state()});
  }

  void Ready(std::span<const Member> nodes) override {
    for (const Member member : nodes) {
      if (member.node > 0 && node(member).not_complete == 0) ready_.push_back(member);
    }
  }

  void Gone(Slot slot) override {
    queue_.erase(request(slot).arrival);
    std::erase(batch_, slot);
    std::erase_if(ready_, [slot](const Member& member) { return member.slot == slot; });
  }

  std::vector<Member> Form() {
    std::vector<Member> members = TakeList();
    int64_t held = 0;
    while (!queue_.empty() && batch_.size() < static_cast<size_t>(options_.max_batch_size)) {
      const auto [slot, state] = queue_.begin()->second;
      const bool fits =
          options_.state_capacity == 0 || held == 0 || held + state <= options_.state_capacity;
      const Member first{slot, 0};
      const bool same = members.empty() || node(first).type == node(members[0]).type;
      if (!fits || !same || request(slot).held()) break;
      held += state;
      queue_.erase(queue_.begin());
      batch_.push_back(slot);
      members.push_back(first);
      Start(slot);
    }
    return members;
  }

  std::optional<Task> NextTask(WorkerId worker) override {
    if (in_flight_) return std::nullopt;
    std::vector<Member> members;
    if (batch_.empty()) {
      members = Form();
      places_ = members.size();
    } else {
      members.swap(ready_);
    }
    if (members.empty()) return std::nullopt;
    int32_t longest = 1, rows = 0;
    for (Member& member : members) {
      const LiveNode& next = node(member);
      if (next.divisible) member.rows = next.rows;
      longest = std::max(longest, next.rows);
      rows += next.rows;
    }
    const size_t places = leave_ ? members.size() : places_;
    const CellType type = node(members[0]).type;
    in_flight_ = true;
    Task task = Give(type, worker, std::move(members));
    task.padding_rows += static_cast<int32_t>(places) * longest - rows;
    task.sequences = static_cast<int32_t>(places);
    task.by_team = true;
    return task;
  }

  void Ended(const Running& /*task*/) override { in_flight_ = false; }

  void CollectLeft(const Running& task, std::vector<BatchRequestId>& left) override {
    if (leave_) return RequestTable::CollectLeft(task, left);
    for (const Member member : task.members) {
      const Request& of = request(member.slot);
      if (of.present && of.leaving && of.in_flight == 0) LetGo(member.slot, left);
    }
    const std::vector<Slot> batch = batch_;
    const bool done = std::all_of(batch.begin(), batch.end(),
                                  [this](Slot slot) { return request(slot).unfinished == 0; });
    for (size_t i = 0; done && i < batch.size(); ++i) LetGo(batch[i], left);
  }

  struct Waiting {
    Slot slot;
    int64_t state;
  };

  const PolicyOptions options_;
  const bool leave_;
  std::map<uint64_t, Waiting> queue_;  // by arrival
  std::vector<Slot> batch_;            // requests that have not left
  size_t places_ = 0;                  // its size at the start
  std::vector<Member> ready_;          // of the batch
  bool in_flight_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<Scheduler>> MakeStaticScheduler(const PolicyOptions& options) {
  return std::make_unique<GenerationBatchScheduler>(options, false);
}

StatusOr<std::unique_ptr<Scheduler>> MakeLeaveOnlyScheduler(const PolicyOptions& options) {
  return std::make_unique<GenerationBatchScheduler>(options, true);
}

}  // namespace chairlift
