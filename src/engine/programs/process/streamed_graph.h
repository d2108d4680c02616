// Requests to Python generators, whose answers are produced step by step.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_STREAMED_GRAPH_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_STREAMED_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/programs/rows_graph.h"
#include "engine/requests/answer_parts.h"

namespace chairlift {

// One node for all of the request's rows.
class StreamedGraph final : public RowsGraph {
 public:
  StreamedGraph(ValidatedRequest request, size_t num_outputs, bool wanted)
      : RowsGraph(std::move(request), 0, false), parts_(std::vector<bool>(num_outputs, wanted)) {}

  int32_t num_nodes() const override { return 1; }
  bool done() const override { return done_; }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override { return std::move(outputs_); }
  const ValidatedRequest& rows(int32_t /*node*/) override { return request(); }
  Status Complete(int32_t /*node*/, std::vector<NamedTensor> outputs,
                  const RowParts::Limits& /*limits*/) override {
    outputs_ = std::move(outputs);
    done_ = true;
    return absl::OkStatus();
  }
  void TakeParts(SendParts send) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    send(parts_.Take());
  }
  // Steps from `first` on of an output, [rows, steps, …].
  void Emit(int output, int64_t first, const Tensor& steps);

 private:
  int32_t load(int32_t /*node*/) const override { return request().load(); }

  bool done_ = false;
  std::vector<NamedTensor> outputs_;
  std::mutex mutex_;
  AnswerParts parts_;  // guarded by mutex_
};

// The steps of all parts, [rows, steps, …], concatenated; `none`: their shape, without steps.
Tensor JoinSteps(const std::vector<Tensor>& parts, const Tensor& none);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_STREAMED_GRAPH_H_
