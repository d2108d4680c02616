// The scheduler of policy `staged` (policies/staged.h). Queries, their batches and buffers are in
// staged_scheduler.cc, its decisions in staged_decisions.cc, and the operations of a user's policy
// in staged_operations.cc.
#ifndef CHAIRLIFT_BATCHING_POLICIES_STAGES_STAGED_SCHEDULER_H_
#define CHAIRLIFT_BATCHING_POLICIES_STAGES_STAGED_SCHEDULER_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "batching/policies/staged.h"
#include "batching/policies/stages/batch_table.h"
#include "batching/policies/stages/buffer_pairs.h"
#include "batching/request_table.h"

namespace chairlift {

class StagedScheduler final : public RequestTable {
 public:
  StagedScheduler(const PolicyOptions& options, const StagedOptions& staged)
      : RequestTable({.deadline_until_end = true}), options_(options), staged_(staged) {}

 private:
  // What requests must have in common to share batches: their types by stage, and the bucket of
  // their lengths.
  struct Kind {
    std::vector<CellType> types;
    int32_t bucket = 0;
    auto operator<=>(const Kind&) const = default;
  };
  struct Batch {
    std::vector<Slot> queries;  // kNoSlot: gone, or in another batch
    int32_t pair = 0;           // −1: it uses no buffers
    StagedBatchId owner = 0;    // of its buffers: the batch that it was split from
    bool starts_whole = false;  // all its original queries start the first stage together
  };
  // The stages that one kind of request passes.
  struct Pipeline {
    Pipeline(const Kind& k, int32_t pairs, int32_t at_once)
        : kind(k),
          table(static_cast<int32_t>(k.types.size())),
          buffers(static_cast<int32_t>(k.types.size()), pairs, at_once) {}
    Kind kind;
    BatchTable table;
    BufferPairs buffers;
    std::map<StagedBatchId, Batch> batches;
    std::list<Slot> queue;                  // not in a batch yet
    int32_t requests = 0;                   // requests that are not gone
    std::optional<TimePoint> wake_at = {};  // when a user's policy wants to be called
  };
  struct Query {
    Pipeline* pipeline = nullptr;
    int32_t next = 0;  // the run that contains its next node
    bool queued = false;
    bool joined = false;  // it is in a batch
    std::list<Slot>::iterator at = {};
    StagedBatchId batch = -1;
    int32_t place = 0;
  };
  struct Work {
    Pipeline* pipeline = nullptr;  // null: none
    int32_t stage = 0;
    BatchPart part = {};
    int32_t pair = 0;
  };

  void Arrived(Slot slot, const CellGraph& graph) override;
  void Released(Slot slot) override;
  void Ready(std::span<const Member> nodes) override;
  void Gone(Slot slot) override;
  void CollectLeft(const Running& task, std::vector<BatchRequestId>& left) override;
  std::optional<Task> NextTask(WorkerId worker) override;
  std::optional<TimePoint> FormsAt(TimePoint now) const override;

  void Enqueue(Slot slot);
  int32_t RowsOf(Slot slot) const { return request(slot).nodes[0].size(); }
  // The queries in places [start, start + num) that are still there: their rows and longest length.
  struct Load {
    int32_t rows = 0;
    int32_t length = 0;
  };
  Load LoadOf(const Batch& batch, int32_t start, int32_t num) const;
  TimePoint DueAt(const Pipeline& pipeline) const;
  Duration CostOf(const Pipeline& pipeline, int32_t stage, Load load) const;  // 0: unknown
  // Sum over stages [first, last).
  Duration CostOfStages(const Pipeline& pipeline, int32_t first, int32_t last, Load load) const;
  // Takes waiting queries of up to `rows` rows in total. A larger one is taken if it is the first
  // and `alone` is true. `starts`: their first stage starts in this same event; only then may a
  // client's next request be taken with it.
  std::vector<Slot> Collect(Pipeline& pipeline, int32_t rows, bool alone, bool starts);
  Slot TakeFirst(Pipeline& pipeline, bool starts);
  void Join(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots);
  // Forms a new batch, which can start at once, if nothing waits for the first stage.
  void FormNew(Pipeline& pipeline);
  void Stretch(Pipeline& pipeline);
  StagedBatchId MakeNew(Pipeline& pipeline, int32_t pair, std::span<const Slot> slots, bool starts);
  void MakeStretched(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots);
  // The earliest due time among a batch's queries that would be on time if no query joined. `old`:
  // the batch's present load.
  std::optional<TimePoint> FirstDue(const Pipeline& pipeline, StagedBatchId id, Load old) const;
  // Whether the batch would end after `due` if `more` joined it. False if some cost is unknown.
  bool EndsAfter(const Pipeline& pipeline, StagedBatchId id, Load old, Load more,
                 TimePoint due) const;

  // --- Decisions by costs. Several queries, together:
  struct Group {
    int32_t queries = 0;  // ≥ 1
    Load load = {};
  };
  static Group PartOf(const Group& group, int32_t queries);
  // The fastest way to run a stage for a whole group: in pieces of `queries` queries, one after the
  // other. If some cost is unknown, all in one piece.
  struct Pieces {
    int32_t queries = 0;
    Duration cost{0};  // of all pieces; 0: unknown
  };
  Pieces BestPieces(const Pipeline& pipeline, int32_t stage, const Group& group) const;
  // Cost of stages [first, last), each in its best pieces. 0: unknown.
  Duration BestCost(const Pipeline& pipeline, int32_t first, int32_t last,
                    const Group& group) const;
  // Whether batches may be divided into parts and pieces.
  bool MayDivide() const;
  // How many of a part's queries the stage should run next; the others run after them.
  int32_t PieceOf(const Pipeline& pipeline, int32_t stage, const BatchPart& part) const;
  // The stage after which pieces of `queries` queries of a part should meet again, because the next
  // stage is better with more.
  int32_t MeetAfter(const Pipeline& pipeline, int32_t stage, const BatchPart& part,
                    int32_t piece) const;
  // How many later queries wait for a second of work, per present query.
  double WeightOfWork(const Pipeline& pipeline, const Group& group) const;
  // The best size of the parts into which a group is divided before `stage`: its number of queries,
  // halved zero or more times. The whole group if costs are unknown.
  int32_t BestPart(const Pipeline& pipeline, int32_t stage, const Group& group) const;
  bool WillSplit(const Pipeline& pipeline, const Group& group) const;
  class BestOrder;
  // Whether it is better for `more` to catch up with the batch than to follow it.
  bool PaysToJoin(const Pipeline& pipeline, StagedBatchId id, const Group& more) const;
  // Workers without a task, including the one that asks.
  int32_t FreeWorkers() const;
  bool SplitAfter(Pipeline& pipeline, int32_t stage, StagedBatchId id);
  void Divide(Pipeline& pipeline, int32_t stage, StagedBatchId id, std::span<const int32_t> sizes);
  // Splits off the queries of a completed part that continue at a later stage than the next.
  void SplitOffSkipping(const Work& work);
  void EndPart(const Work& work);
  // Calls a user's policy: for waiting queries (`may_begin`: they may form a new batch), or for a
  // batch that has run a stage (returns whether the batch was split).
  class Operations;
  void AskAboutWaiting(Pipeline& pipeline, bool may_begin);
  bool AskAboutSplit(Pipeline& pipeline, int32_t stage, StagedBatchId id);
  void EraseIfUnused(const Pipeline* pipeline);

  const PolicyOptions options_;
  const StagedOptions staged_;
  int32_t running_ = 0;                    // tasks
  std::optional<TimePoint> arrived_ = {};  // when the latest query arrived
  double gap_ns_ = 0;                      // mean time between queries
  std::map<Kind, Pipeline> pipelines_;
  std::vector<Query> queries_;  // by slot
  std::vector<Work> work_;      // by worker
  int32_t active_rows_ = 0;     // of requests in batches
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGES_STAGED_SCHEDULER_H_
