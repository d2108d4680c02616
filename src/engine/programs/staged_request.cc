#include "engine/programs/staged_request.h"

#include <algorithm>

#include "base/status.h"

namespace chairlift {

StatusOr<StageLayout> StageLayout::Of(const StagedModel& model,
                                      std::span<const std::unique_ptr<Cell>> cells) {
  StageLayout layout;
  layout.outputs = model.outputs;
  layout.num_values = static_cast<int>(model.values.size());
  std::vector<int64_t> bytes(model.values.size(), 0);
  std::vector<int> last(model.values.size(), -1);  // the stage that reads it last
  const int stages = static_cast<int>(model.stages.size());
  for (int s = 0; s < stages; ++s) {
    const ModelStage& stage = model.stages[static_cast<size_t>(s)];
    const Cell& cell = *cells[static_cast<size_t>(s)];
    for (const int value : stage.inputs) last[static_cast<size_t>(value)] = s;
    for (size_t i = 0; i < stage.outputs.size(); ++i) {
      const auto value = static_cast<size_t>(stage.outputs[i]);
      bytes[value] = cell.outputs()[i].row_bytes;
      if (bytes[value] < 0) {
        return Unimplemented("rows of '{}' vary in size", model.values[value]);
      }
    }
    layout.stages.push_back({stage.inputs, stage.outputs, {}});
    layout.previous.push_back(s - 1);
  }
  for (const int value : model.outputs) last[static_cast<size_t>(value)] = stages;
  for (size_t value = 0; value < last.size(); ++value) {
    if (last[value] >= 0 && last[value] < stages) {
      layout.stages[static_cast<size_t>(last[value])].dropped.push_back(static_cast<int>(value));
    }
  }
  int64_t live = 0;
  for (const Ports& stage : layout.stages) {
    for (const int value : stage.outputs) live += bytes[static_cast<size_t>(value)];
    layout.row_bytes = std::max(layout.row_bytes, live);
    for (const int value : stage.dropped) live -= bytes[static_cast<size_t>(value)];
  }
  return layout;
}

StagedRequest::StagedRequest(const StageLayout& layout, const Signature& signature,
                             ValidatedRequest request)
    : RequestGraph(std::move(request)), layout_(layout), signature_(signature) {
  values_.resize(static_cast<size_t>(layout.num_values));
  const std::vector<Tensor>& inputs = this->request().inputs;
  std::copy(inputs.begin(), inputs.end(), values_.begin());
}

StagedRequest::~StagedRequest() {
  if (budget_ != nullptr) budget_->Give(taken_);
}

GraphNode StagedRequest::run(int32_t index) const {
  GraphNode node{.cell = index, .rows = request().rows, .key = {}, .dependencies = {}};
  if (index > 0) node.dependencies = {&layout_.previous[static_cast<size_t>(index)], 1};
  return node;
}

Status StagedRequest::Begin(int32_t stage, const WorkerMemory& memory) {
  if (stage != next_) return Internal("stage {} of a request that is at stage {}", stage, next_);
  if (stage > 0) return absl::OkStatus();
  constexpr double kMiB = 1 << 20;
  const int64_t bytes = layout_.row_bytes * rows();
  if (static_cast<size_t>(bytes) > memory.compute.limit()) {
    return absl::OutOfRangeError(fmt::format(
        "what its {} rows leave between stages needs {:.2f} MiB, and one task may have {:.2f} MiB "
        "(--memory-budget); fewer rows need less",
        rows(), static_cast<double>(bytes) / kMiB,
        static_cast<double>(memory.compute.limit()) / kMiB));
  }
  if (memory.partial_answers == nullptr) return absl::OkStatus();
  if (memory.partial_answers->Take(bytes) != nullptr) {
    return ResourceExhausted(
        "what it leaves between stages, {:.2f} MiB, does not fit: requests under way have {:.2f} "
        "of {:.2f} MiB (--memory-budget); try again later, or send fewer rows",
        static_cast<double>(bytes) / kMiB,
        static_cast<double>(memory.partial_answers->held()) / kMiB,
        static_cast<double>(memory.partial_answers->limit()) / kMiB);
  }
  budget_ = memory.partial_answers;
  taken_ = bytes;
  return absl::OkStatus();
}

void StagedRequest::Complete(int32_t stage, std::span<const Tensor> outputs, int64_t first) {
  const StageLayout::Ports& ports = layout_.stages[static_cast<size_t>(stage)];
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool whole = outputs[i].shape()[0] == rows();
    values_[static_cast<size_t>(ports.outputs[i])] =
        whole ? outputs[i] : outputs[i].Rows(first, rows());
  }
  for (const int value : ports.dropped) values_[static_cast<size_t>(value)] = Tensor();
  next_ = stage + 1;
}

StatusOr<std::vector<NamedTensor>> StagedRequest::TakeOutputs() {
  std::vector<NamedTensor> answer;
  std::vector<bool> taken(values_.size(), false);
  for (const int output : request().outputs) {
    const auto value = static_cast<size_t>(layout_.outputs[static_cast<size_t>(output)]);
    // Whoever gets the answer may write to it.
    const bool shared = taken[value] || layout_.outputs[static_cast<size_t>(output)] <
                                            static_cast<int>(request().inputs.size());
    taken[value] = true;
    answer.push_back({signature_.outputs[static_cast<size_t>(output)].name,
                      shared ? values_[value].Clone() : values_[value]});
  }
  return answer;
}

}  // namespace chairlift
