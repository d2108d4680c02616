// The scheduler of policy `staged` (policies/staged.h): queries, their batches and buffers are in
// staged_scheduler.cc, what it decides in staged_decisions.cc, what a user's policy does in
// staged_operations.cc.
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
  // What requests must have in common to share batches: their types by stage, the bucket of their
  // lengths.
  struct Kind {
    std::vector<CellType> types;
    int32_t bucket = 0;
    auto operator<=>(const Kind&) const = default;
  };
  struct Batch {
    std::vector<Slot> queries;  // kNoSlot: gone, or in another batch
    int32_t pair = 0;           // −1: it is in no buffers
    StagedBatchId owner = 0;    // of its buffers: the batch it was split from
    bool starts_whole = false;  // all of those it was made of begin the first stage together
  };
  // The stages as one kind of request passes them.
  struct Pipeline {
    Pipeline(const Kind& k, int32_t pairs, int32_t at_once)
        : kind(k),
          table(static_cast<int32_t>(k.types.size())),
          buffers(static_cast<int32_t>(k.types.size()), pairs, at_once) {}
    Kind kind;
    BatchTable table;
    BufferPairs buffers;
    std::map<StagedBatchId, Batch> batches;
    std::list<Slot> queue;                  // in no batch yet
    int32_t requests = 0;                   // that are not gone
    std::optional<TimePoint> wake_at = {};  // as a user's policy wants to be called
  };
  struct Query {
    Pipeline* pipeline = nullptr;
    int32_t next = 0;  // the run that its next node is of
    bool queued = false;
    bool joined = false;  // a batch
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
  // Of those in places [start, start + num) that are still there: their rows, the longest length.
  struct Load {
    int32_t rows = 0;
    int32_t length = 0;
  };
  Load LoadOf(const Batch& batch, int32_t start, int32_t num) const;
  TimePoint DueAt(const Pipeline& pipeline) const;
  Duration CostOf(const Pipeline& pipeline, int32_t stage, Load load) const;  // 0: not known
  // Of stages [first, last) together.
  Duration CostOfStages(const Pipeline& pipeline, int32_t first, int32_t last, Load load) const;
  // Takes those that wait, up to so many rows; one of more rows goes if it is the first and
  // `alone`. `starts`: their first stage is given out in this very event; only then may a client's
  // next request come with it.
  std::vector<Slot> Collect(Pipeline& pipeline, int32_t rows, bool alone, bool starts);
  Slot TakeFirst(Pipeline& pipeline, bool starts);
  void Join(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots);
  // A new batch, which can begin at once, if nothing waits for the first stage.
  void FormNew(Pipeline& pipeline);
  void Stretch(Pipeline& pipeline);
  StagedBatchId MakeNew(Pipeline& pipeline, int32_t pair, std::span<const Slot> slots, bool starts);
  void MakeStretched(Pipeline& pipeline, StagedBatchId id, std::span<const Slot> slots);
  // When the first of a batch's queries is due that would not be late if nobody joined. `old`: what
  // the batch has.
  std::optional<TimePoint> FirstDue(const Pipeline& pipeline, StagedBatchId id, Load old) const;
  // Whether the batch, where all costs are known, ends after `due` if so many more join it.
  bool EndsAfter(const Pipeline& pipeline, StagedBatchId id, Load old, Load more,
                 TimePoint due) const;

  // What is decided by costs. Some queries, together:
  struct Group {
    int32_t queries = 0;  // ≥ 1
    Load load = {};
  };
  static Group PartOf(const Group& group, int32_t queries);
  // How a stage runs all of a group soonest: in pieces of so many queries, one after the other; all
  // of them where some cost is not known.
  struct Pieces {
    int32_t queries = 0;
    Duration cost{0};  // together; 0: not known
  };
  Pieces BestPieces(const Pipeline& pipeline, int32_t stage, const Group& group) const;
  // Of stages [first, last), each in such pieces. 0: not known.
  Duration BestCost(const Pipeline& pipeline, int32_t first, int32_t last,
                    const Group& group) const;
  // Whether batches may be cut into parts and pieces.
  bool MayDivide() const;
  // How many of a part's queries the stage is to run next, the others after them.
  int32_t PieceOf(const Pipeline& pipeline, int32_t stage, const BatchPart& part) const;
  // The stage after which pieces of so many queries of a part are to meet again: the next one had
  // better have more.
  int32_t MeetAfter(const Pipeline& pipeline, int32_t stage, const BatchPart& part,
                    int32_t piece) const;
  // How many of those who come later wait for a second of work, for each query that is there.
  double WeightOfWork(const Pipeline& pipeline, const Group& group) const;
  // Into how large parts a group is best divided before `stage`: its queries, halved some times.
  // That of all where costs are not known.
  int32_t BestPart(const Pipeline& pipeline, int32_t stage, const Group& group) const;
  bool WillSplit(const Pipeline& pipeline, const Group& group) const;
  class BestOrder;
  // Whether `more` had better catch up with the batch than follow it.
  bool PaysToJoin(const Pipeline& pipeline, StagedBatchId id, const Group& more) const;
  // Workers without a task; the one that asks has none.
  int32_t FreeWorkers() const;
  bool SplitAfter(Pipeline& pipeline, int32_t stage, StagedBatchId id);
  void Divide(Pipeline& pipeline, int32_t stage, StagedBatchId id, std::span<const int32_t> sizes);
  // Those of a part that has run who go on at a later stage than the next.
  void SplitOffSkipping(const Work& work);
  void EndPart(const Work& work);
  // A user's policy decides about those that wait; `may_begin`: they may make a new batch. Or about
  // a batch that has run a stage: whether it was split.
  class Operations;
  void AskAboutWaiting(Pipeline& pipeline, bool may_begin);
  bool AskAboutSplit(Pipeline& pipeline, int32_t stage, StagedBatchId id);
  void EraseIfUnused(const Pipeline* pipeline);

  const PolicyOptions options_;
  const StagedOptions staged_;
  int32_t running_ = 0;                    // tasks
  std::optional<TimePoint> arrived_ = {};  // the latest query
  double gap_ns_ = 0;                      // between queries, in mean
  std::map<Kind, Pipeline> pipelines_;
  std::vector<Query> queries_;  // by slot
  std::vector<Work> work_;      // by worker
  int32_t active_rows_ = 0;     // of requests in batches
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_POLICIES_STAGES_STAGED_SCHEDULER_H_
