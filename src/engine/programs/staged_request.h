// A request to a model that is cut into stages: a chain of one node a stage.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_STAGED_REQUEST_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_STAGED_REQUEST_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/programs/program.h"
#include "graph/stages/stages.h"
#include "runtime/cell.h"

namespace chairlift {

// Where requests may leave, or skip stages.
struct LayoutExit {
  int value = 0;            // that decides
  std::string name;         // of it
  double at_least = 0;      // StageExit
  ExitPredicate predicate;  // in its place, unless null
  int next = 0;             // the stage with which it goes on; the number of stages: it leaves
  std::vector<std::pair<int, int>> instead;  // value, and what stands for it
};

// What all requests to a model share.
struct StageLayout {
  struct Ports {
    std::vector<int> inputs;   // values, by input of the stage
    std::vector<int> outputs;  // likewise
    std::vector<int> dropped;  // values that nobody needs after the stage
  };
  // What there is of a value for each row of a request or, where tokens are packed, for each token.
  struct Unit {
    int64_t bytes = 0;  // of what stages leave; else 0
    bool token = false;
  };
  // `units`: by value. `exits`: by stage.
  static StageLayout Of(const StagedModel& model, std::vector<Unit> units,
                        std::vector<std::vector<LayoutExit>> exits = {});
  // The stage with which a request that goes on with `first` stops, or grows: the last one, or the
  // first with an exit.
  int LastOfPiece(int first) const;

  std::vector<Ports> stages;
  std::vector<int> outputs;                    // values, by output of the model
  std::vector<int32_t> previous;               // [s]: s − 1
  std::vector<std::vector<LayoutExit>> exits;  // by stage
  std::vector<Unit> units;                     // by value
  // Of what one row, and one token, leaves between stages, at the most at once.
  int64_t row_bytes = 0;
  int64_t token_bytes = 0;
};

// The first row of a request in a batch, and its first token.
struct PlaceInBatch {
  int64_t row = 0;
  int64_t token = 0;
};

// What requests that ran as one batch left between stages lies in common memory: what they took of
// the budget for it is given back when none of them needs any of it.
class StageMemory {
 public:
  // Gives the bytes back at its end.
  StageMemory(std::shared_ptr<ByteBudget> budget, int64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}
  ~StageMemory() { budget_->Give(bytes_); }
  StageMemory(const StageMemory&) = delete;
  StageMemory& operator=(const StageMemory&) = delete;

 private:
  const std::shared_ptr<ByteBudget> budget_;
  const int64_t bytes_;
};
// Of all requests of a batch.
using SharedStageMemory = std::shared_ptr<const std::vector<std::shared_ptr<StageMemory>>>;

// A request is a chain of its stages up to the first with an exit, and grows from there. One task
// at a time works on it. Where tokens are packed its nodes' rows are its tokens.
class StagedRequest final : public RequestGraph {
 public:
  // `layout` must outlive it.
  StagedRequest(const StageLayout& layout, const Signature& signature, ValidatedRequest request);

  int32_t num_nodes() const override { return layout_.LastOfPiece(0) + 1; }
  GraphNode run(int32_t index) const override;
  std::vector<GrownNode> TakeGrown() override;
  bool done() const override { return next_ == static_cast<int32_t>(layout_.stages.size()); }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  // Before a stage runs: the first takes the memory for all that the request leaves between stages.
  // kOutOfRange where a task may never have as much, kResourceExhausted where others have it now.
  Status Begin(int32_t stage, const WorkerMemory& memory);
  // A value's rows, of a stage that Begin() has let run.
  const Tensor& value(int value) const { return values_[static_cast<size_t>(value)].tensor; }
  // What the stage gave for a batch; the request's rows or tokens lie in each from `first` on, one
  // after the other. `memory`: of the batch; null where the request is alone. Then takes the first
  // exit that holds: returns which of the stage's, −1: none. An error is a predicate's, or
  // internal.
  StatusOr<int> Complete(int32_t stage, std::span<const Tensor> outputs, PlaceInBatch first,
                         const SharedStageMemory& memory);
  int64_t rows() const { return request().rows; }
  // Of what it has taken; null: nothing.
  const std::shared_ptr<StageMemory>& memory() const { return taken_; }

 private:
  struct Value {
    Tensor tensor;
    SharedStageMemory memory;  // that it lies in
  };

  Status Take(const LayoutExit& exit);

  const StageLayout& layout_;
  const Signature& signature_;
  std::vector<Value> values_;
  int32_t next_ = 0;   // stage
  int32_t nodes_ = 0;  // that its graph has
  std::vector<GrownNode> grown_;
  std::shared_ptr<StageMemory> taken_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_REQUEST_H_
