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

// What all requests to a model share.
struct StageLayout {
  struct Ports {
    std::vector<int> inputs;   // values, by input of the stage
    std::vector<int> outputs;  // likewise
    std::vector<int> dropped;  // values that nobody needs after the stage
  };
  // Of stages that have been made; kUnimplemented names a value whose rows vary in size.
  static StatusOr<StageLayout> Of(const StagedModel& model,
                                  std::span<const std::unique_ptr<Cell>> cells);

  std::vector<Ports> stages;
  std::vector<int> outputs;       // values, by output of the model
  std::vector<int32_t> previous;  // [s]: s − 1
  int num_values = 0;
  int64_t row_bytes = 0;  // of what one row leaves between stages, at the most at once
};

// One task at a time works on a request.
class StagedRequest final : public RequestGraph {
 public:
  // `layout` must outlive it.
  StagedRequest(const StageLayout& layout, const Signature& signature, ValidatedRequest request);
  ~StagedRequest() override;

  int32_t num_nodes() const override { return static_cast<int32_t>(layout_.stages.size()); }
  GraphNode run(int32_t index) const override;
  bool done() const override { return next_ == num_nodes(); }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  // Before a stage runs: the first takes the memory for all that the request leaves between stages.
  // kOutOfRange where a task may never have as much, kResourceExhausted where others have it now.
  Status Begin(int32_t stage, const WorkerMemory& memory);
  // A value's rows, of a stage that Begin() has let run.
  const Tensor& value(int value) const { return values_[static_cast<size_t>(value)]; }
  // What the stage gave for a batch; the request's are rows [first, first + rows()) of each.
  void Complete(int32_t stage, std::span<const Tensor> outputs, int64_t first);
  int64_t rows() const { return request().rows; }

 private:
  const StageLayout& layout_;
  const Signature& signature_;
  std::vector<Tensor> values_;
  int32_t next_ = 0;                    // stage
  std::shared_ptr<ByteBudget> budget_;  // that taken_ bytes are from
  int64_t taken_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_STAGED_REQUEST_H_
