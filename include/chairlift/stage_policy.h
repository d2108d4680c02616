// Batching policies of a user's own for models in stages: conditions that call the meta-operations
// *new*, *stretch* and *split* (Cui et al., "DVABatch", USENIX ATC 2022, §7.2, Figure 12).
//
// Queries wait, become a batch (new) or join the latest one (stretch), and pass the stages with it;
// between two stages a batch may go on as several (split). When is the policy's to say, what is
// possible the engine's: each query passes each stage once, batches hold max_batch_size rows at
// most, buffer pairs and the order of each client's requests are kept.
//
//   class PairsPolicy : public StagePolicy {  // two at a time, halved after the first stage
//     void Schedule(const StageBatch& batch, MetaOperations& operations) override {
//       if (batch.stage == 0) {
//         if (!operations.Stretch(1)) operations.New(std::min<int>(2, batch.rows.size()));
//       } else if (batch.stage == 1 && batch.rows.size() == 2) {
//         operations.Split(std::array{1, 1});
//       }
//     }
//   };
#ifndef CHAIRLIFT_STAGE_POLICY_H_
#define CHAIRLIFT_STAGE_POLICY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace chairlift {

// Queries that a policy decides about.
struct StageBatch {
  int stage = 0;                  // how many stages they have run; 0: they wait for the first
  int stages = 0;                 // of the model
  std::span<const int32_t> rows;  // of each query, in order; 0: it has left
  // Since the first of those that wait arrived; of a batch, since it was made.
  std::chrono::nanoseconds age{0};
};

// Valid during the call of Schedule() that got it. Each does all that it says and returns true, or
// nothing and false.
class MetaOperations {
 public:
  virtual ~MetaOperations() = default;

  // The first `queries` ≥ 1 of those that wait make a batch, which enters the first stage now.
  // False: something else is there, its buffers are in use, or they have more rows than a batch
  // may (one query may).
  virtual bool New(int queries) = 0;
  // The first `queries` ≥ 1 of those that wait join the latest batch: they run the stages that it
  // has behind it, and are merged with it. False: latest() is null, or there is no room.
  virtual bool Stretch(int queries) = 0;
  // A batch that has run a stage, and not the last, goes on as several, of so many queries each:
  // ≥ 1 and together as many as StageBatch::rows has.
  virtual bool Split(std::span<const int> sizes) = 0;
  // Where queries go on waiting: Schedule() is called again after `delay`, if nothing happens
  // before.
  virtual void WakeAfter(std::chrono::nanoseconds delay) = 0;

  // The batch that Stretch() would enlarge; null: none may be now.
  virtual const StageBatch* latest() const = 0;
  // The most rows in a batch.
  virtual int max_batch_size() const = 0;
  // What a stage, the first being 0, takes with so many rows; 0: unknown.
  virtual std::chrono::nanoseconds Cost(int stage, int rows) const = 0;
};

// Called by one thread at a time, which holds the model's lock: its requests wait meanwhile, those
// of other models do not. It must not wait for anything, nor call the engine. One that throws, or
// takes more than a millisecond 16 times in a row, is not called any more.
class StagePolicy {
 public:
  virtual ~StagePolicy() = default;
  // At `batch.stage` 0: queries wait, and one of New() and Stretch() may be possible; whoever is
  // in none goes on waiting. Else: all of a batch that runs on have run the stage, and may Split().
  virtual void Schedule(const StageBatch& batch, MetaOperations& operations) = 0;
};

// Makes the policy of one model, each time that it is loaded. Null is refused.
using StagePolicyFactory = std::function<std::unique_ptr<StagePolicy>()>;

}  // namespace chairlift

#endif  // CHAIRLIFT_STAGE_POLICY_H_
