// User-defined batching policies for models in stages: rules that call the meta-operations *new*,
// *stretch* and *split* (Cui et al., "DVABatch", USENIX ATC 2022, §7.2, Figure 12).
//
// Queries wait, become a batch (new) or join the latest batch (stretch), and pass the stages with
// it. Between two stages a batch may be divided (split). The policy decides when; the engine
// enforces what is allowed. Each query passes each stage once, batches have at most max_batch_size
// rows, and the buffer pairs and the order of each client's requests are respected.
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

// The queries that a policy decides about.
struct StageBatch {
  int stage = 0;                  // stages already run; 0: the queries wait for the first
  int stages = 0;                 // of the model
  std::span<const int32_t> rows;  // rows of each query, in order; 0: the query was cancelled or has
                                  // exited
  // Waiting queries: since the first of them arrived. A batch: since it was made.
  std::chrono::nanoseconds age{0};
};

// Valid during the call of Schedule() that received it. Each operation either succeeds completely
// and returns true, or does nothing and returns false.
class MetaOperations {
 public:
  virtual ~MetaOperations() = default;

  // Makes a batch of the first `queries` ≥ 1 waiting queries, which enters the first stage now.
  // False: another batch is there, its buffers are in use, or the queries have more rows than a
  // batch may have (a single query may exceed that).
  virtual bool New(int queries) = 0;
  // Adds the first `queries` ≥ 1 waiting queries to the latest batch. They run the stages that it
  // has passed, then merge with it. False: latest() is null, or there is no room.
  virtual bool Stretch(int queries) = 0;
  // Divides a batch that has run a stage other than the last. `sizes` are the numbers of queries of
  // the parts: each ≥ 1, and the sum must be the size of StageBatch::rows.
  virtual bool Split(std::span<const int> sizes) = 0;
  // If queries keep waiting: calls Schedule() again after `delay`, unless something else causes a
  // call before.
  virtual void WakeAfter(std::chrono::nanoseconds delay) = 0;

  // The batch that Stretch() would enlarge; null if no batch can be enlarged now.
  virtual const StageBatch* latest() const = 0;
  // Maximum rows in a batch.
  virtual int max_batch_size() const = 0;
  // The time of a stage, counted from 0, for a batch of `rows` rows. 0: unknown.
  virtual std::chrono::nanoseconds Cost(int stage, int rows) const = 0;
};

// Called by one thread at a time, which holds the model's lock. During the call, the model's other
// requests wait; those of other models do not. It must not block or call the engine. A policy that
// throws, or takes more than a millisecond 16 times in a row, is not called again.
class StagePolicy {
 public:
  virtual ~StagePolicy() = default;
  // If `batch.stage` is 0: queries wait, and New() or Stretch() may be possible. Queries that are
  // put into no batch keep waiting. Otherwise: the queries are those of a running batch that have
  // all run the stage; Split() may be called.
  virtual void Schedule(const StageBatch& batch, MetaOperations& operations) = 0;
};

// Makes the policy of one model; called each time the model is loaded. Null is refused.
using StagePolicyFactory = std::function<std::unique_ptr<StagePolicy>()>;

}  // namespace chairlift

#endif  // CHAIRLIFT_STAGE_POLICY_H_
