// A request to a model that is cut into stages: a chain of one node per stage.
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

// Where requests may exit or skip stages.
struct LayoutExit {
  int value = 0;            // the value that decides
  std::string name;         // its name
  double at_least = 0;      // StageExit
  ExitPredicate predicate;  // used instead unless null
  int next = 0;             // the stage at which it continues; the number of stages: it exits
  std::vector<std::pair<int, int>> instead;  // value and its substitute
};

// State common to all requests to a model.
struct StageLayout {
  struct Ports {
    std::vector<int> inputs;   // values, by input of the stage
    std::vector<int> outputs;  // values, by output of the stage
    std::vector<int> dropped;  // values that are not needed after the stage
  };
  // The part of a value for each row of a request or, if tokens are packed, for each token.
  struct Unit {
    int64_t bytes = 0;  // for results of stages; otherwise 0
    bool token = false;
  };
  // `units`: by value. `exits`: by stage.
  static StageLayout Of(const StagedModel& model, std::vector<Unit> units,
                        std::vector<std::vector<LayoutExit>> exits = {});
  // For a request that continues at `first`: the stage after which its graph must grow, either the
  // last one or the first with an exit.
  int LastOfPiece(int first) const;

  std::vector<Ports> stages;
  std::vector<int> outputs;                    // values, by output of the model
  std::vector<int32_t> previous;               // [s]: s − 1
  std::vector<std::vector<LayoutExit>> exits;  // by stage
  std::vector<Unit> units;                     // by value
  // The maximum bytes of one row, and of one token, between stages at any time.
  int64_t row_bytes = 0;
  int64_t token_bytes = 0;
};

// The first row of a request in a batch, and its first token.
struct PlaceInBatch {
  int64_t row = 0;
  int64_t token = 0;
};

// Requests that ran as one batch share the memory of their intermediate results. Its part of the
// budget is returned when none of them needs it any more.
class StageMemory {
 public:
  // Returns the bytes when destroyed.
  StageMemory(std::shared_ptr<ByteBudget> budget, int64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}
  ~StageMemory() { budget_->Give(bytes_); }
  StageMemory(const StageMemory&) = delete;
  StageMemory& operator=(const StageMemory&) = delete;

 private:
  const std::shared_ptr<ByteBudget> budget_;
  const int64_t bytes_;
};
// For all requests of a batch.
using SharedStageMemory = std::shared_ptr<const std::vector<std::shared_ptr<StageMemory>>>;

// A request is a chain of its stages up to the first with an exit, and grows from there. One task
// at a time works on it. If tokens are packed, the rows of its nodes are tokens.
class StagedRequest final : public RequestGraph {
 public:
  // `layout` must outlive it.
  StagedRequest(const StageLayout& layout, const Signature& signature, ValidatedRequest request);

  int32_t num_nodes() const override { return layout_.LastOfPiece(0) + 1; }
  GraphNode run(int32_t index) const override;
  std::vector<GrownNode> TakeGrown() override;
  bool done() const override { return next_ == static_cast<int32_t>(layout_.stages.size()); }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  // Called before a stage runs. The first one reserves memory for everything that the request keeps
  // between stages. kOutOfRange if a task may never have that much, kResourceExhausted if others
  // have it now.
  Status Begin(int32_t stage, const WorkerMemory& memory);
  // The rows of a value, for a stage that Begin() has allowed.
  const Tensor& value(int value) const { return values_[static_cast<size_t>(value)].tensor; }
  // Takes the stage's results for a batch. In each, the request's rows or tokens are consecutive
  // from `first` on. `memory`: the batch's; null if the request runs alone. Then takes the first
  // exit whose condition holds: returns its index in the stage, −1: none. An error comes from a
  // predicate, or is internal.
  StatusOr<int> Complete(int32_t stage, std::span<const Tensor> outputs, PlaceInBatch first,
                         const SharedStageMemory& memory);
  int64_t rows() const { return request().rows; }
  // Its reserved memory; null: none.
  const std::shared_ptr<StageMemory>& memory() const { return taken_; }

 private:
  struct Value {
    Tensor tensor;
    SharedStageMemory memory;  // the memory that it is in
  };

  Status Take(const LayoutExit& exit);

  const StageLayout& layout_;
  const Signature& signature_;
  std::vector<Value> values_;
  int32_t next_ = 0;   // stage
  int32_t nodes_ = 0;  // of its graph
  std::vector<GrownNode> grown_;
  std::shared_ptr<StageMemory> taken_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_REQUEST_H_
