#include "engine/programs/staged_request.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "engine/programs/user_plugin.h"

namespace chairlift {

namespace {

template <typename T>
bool EachRowHas(const Tensor& output, double at_least) {
  const int64_t rows = output.shape()[0];
  const std::span<const T> values = output.values<T>();
  const size_t width = rows == 0 ? 0 : values.size() / static_cast<size_t>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const auto own = values.subspan(static_cast<size_t>(row) * width, width);
    const bool found = std::any_of(own.begin(), own.end(), [at_least](T value) {
      if constexpr (std::is_floating_point_v<T>) {
        return static_cast<double>(value) >= at_least;
      } else {
        return static_cast<double>(static_cast<float>(value)) >= at_least;
      }
    });
    if (!found) return false;
  }
  return true;
}

StatusOr<bool> Holds(const LayoutExit& exit, const Tensor& output) {
  if (exit.predicate != nullptr) {
    return GuardUserCode([&]() -> StatusOr<bool> { return exit.predicate(output); });
  }
  switch (output.dtype()) {
    case DType::kFloat:
      return EachRowHas<float>(output, exit.at_least);
    case DType::kDouble:
      return EachRowHas<double>(output, exit.at_least);
    case DType::kFloat16:
      return EachRowHas<Float16>(output, exit.at_least);
    case DType::kBFloat16:
      return EachRowHas<BFloat16>(output, exit.at_least);
    default:
      return Internal("a threshold for '{}', which is not a float type", exit.name);
  }
}

}  // namespace

int StageLayout::LastOfPiece(int first) const {
  const int last = static_cast<int>(stages.size()) - 1;
  while (first < last && exits[static_cast<size_t>(first)].empty()) ++first;
  return first;
}

StageLayout StageLayout::Of(const StagedModel& model, std::vector<Unit> units,
                            std::vector<std::vector<LayoutExit>> exits) {
  StageLayout layout;
  layout.exits = std::move(exits);
  layout.exits.resize(model.stages.size());
  layout.outputs = model.outputs;
  layout.units = std::move(units);
  std::vector<int> last(model.values.size(), -1);  // the last stage that reads it
  const int stages = static_cast<int>(model.stages.size());
  for (int s = 0; s < stages; ++s) {
    const ModelStage& stage = model.stages[static_cast<size_t>(s)];
    for (const int value : stage.inputs) last[static_cast<size_t>(value)] = s;
    layout.stages.push_back({stage.inputs, stage.outputs, {}});
    layout.previous.push_back(s - 1);
  }
  for (int s = 0; s < stages; ++s) {
    for (const LayoutExit& exit : layout.exits[static_cast<size_t>(s)]) {
      for (const auto& [value, source] : exit.instead) {
        int& reads = last[static_cast<size_t>(source)];
        reads = std::max(reads, s);
      }
    }
  }
  for (const int value : model.outputs) last[static_cast<size_t>(value)] = stages;
  for (size_t value = 0; value < last.size(); ++value) {
    if (last[value] >= 0 && last[value] < stages) {
      layout.stages[static_cast<size_t>(last[value])].dropped.push_back(static_cast<int>(value));
    }
  }
  int64_t of_row = 0, of_token = 0;  // existing bytes
  const auto add = [&](int value, int64_t sign) {
    const Unit& unit = layout.units[static_cast<size_t>(value)];
    (unit.token ? of_token : of_row) += sign * unit.bytes;
  };
  for (const Ports& stage : layout.stages) {
    for (const int value : stage.outputs) add(value, 1);
    layout.row_bytes = std::max(layout.row_bytes, of_row);
    layout.token_bytes = std::max(layout.token_bytes, of_token);
    for (const int value : stage.dropped) add(value, -1);
  }
  return layout;
}

StagedRequest::StagedRequest(const StageLayout& layout, const Signature& signature,
                             ValidatedRequest request)
    : RequestGraph(std::move(request)),
      layout_(layout),
      signature_(signature),
      nodes_(layout.LastOfPiece(0) + 1) {
  values_.resize(layout.units.size());
  if (signature.sequences) return;  // each stage packs them again
  const std::vector<Tensor>& inputs = this->request().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) values_[i].tensor = inputs[i];
}

GraphNode StagedRequest::run(int32_t index) const {
  GraphNode node{.cell = index, .rows = request().load(), .key = {}, .dependencies = {}};
  if (index > 0) node.dependencies = {&layout_.previous[static_cast<size_t>(index)], 1};
  return node;
}

std::vector<GrownNode> StagedRequest::TakeGrown() { return std::exchange(grown_, {}); }

Status StagedRequest::Begin(int32_t stage, const WorkerMemory& memory) {
  if (stage != next_) return Internal("stage {} of a request that is at stage {}", stage, next_);
  if (stage > 0) return absl::OkStatus();
  constexpr double kMiB = 1 << 20;
  const int64_t bytes = layout_.row_bytes * rows() + layout_.token_bytes * request().num_tokens;
  if (static_cast<size_t>(bytes) > memory.compute.limit()) {
    return absl::OutOfRangeError(fmt::format(
        "what its {} {} leave between stages needs {:.2f} MiB, and one task may have {:.2f} MiB "
        "(--memory-budget); fewer rows need less",
        request().load(), signature_.sequences ? "tokens" : "rows",
        static_cast<double>(bytes) / kMiB, static_cast<double>(memory.compute.limit()) / kMiB));
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
  taken_ = std::make_shared<StageMemory>(memory.partial_answers, bytes);
  return absl::OkStatus();
}

StatusOr<int> StagedRequest::Complete(int32_t stage, std::span<const Tensor> outputs,
                                      PlaceInBatch first, const SharedStageMemory& memory) {
  const StageLayout::Ports& ports = layout_.stages[static_cast<size_t>(stage)];
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto value = static_cast<size_t>(ports.outputs[i]);
    const bool tokens = layout_.units[value].token;
    const int64_t count = tokens ? request().num_tokens : rows();
    const bool whole = outputs[i].shape()[0] == count;
    values_[value] = {whole ? outputs[i] : outputs[i].Rows(tokens ? first.token : first.row, count),
                      memory};
  }
  next_ = stage + 1;
  const std::vector<LayoutExit>& exits = layout_.exits[static_cast<size_t>(stage)];
  int taken = -1;
  for (size_t i = 0; i < exits.size() && taken < 0; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const bool holds, Holds(exits[i], value(exits[i].value)));
    if (holds) taken = static_cast<int>(i);
  }
  if (taken >= 0) {
    CHAIRLIFT_RETURN_IF_ERROR(Take(exits[static_cast<size_t>(taken)]));
  } else {
    for (const int value : ports.dropped) values_[static_cast<size_t>(value)] = {};
  }
  if (exits.empty() || done()) return taken;
  for (int next = next_; next <= layout_.LastOfPiece(next_); ++next) {
    GrownNode& node = grown_.emplace_back();
    node.cell = next;
    node.rows = request().load();
    node.dependencies = {nodes_ - 1};
    ++nodes_;
  }
  return taken;
}

Status StagedRequest::Take(const LayoutExit& exit) {
  std::vector<Value> sources;
  for (const auto& [missing, source] : exit.instead) {
    if (!value(source).present()) {
      return Internal("exit after '{}': what stands for value {} is not there", exit.name, missing);
    }
    sources.push_back(values_[static_cast<size_t>(source)]);
  }
  for (int stage = next_ - 1; stage < exit.next; ++stage) {
    for (const int value : layout_.stages[static_cast<size_t>(stage)].dropped) {
      values_[static_cast<size_t>(value)] = {};
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    values_[static_cast<size_t>(exit.instead[i].first)] = std::move(sources[i]);
  }
  next_ = exit.next;
  return absl::OkStatus();
}

StatusOr<std::vector<NamedTensor>> StagedRequest::TakeOutputs() {
  std::vector<NamedTensor> answer;
  std::vector<const void*> taken;
  for (const Tensor& input : request().inputs) taken.push_back(input.raw());
  for (const int output : request().outputs) {
    const auto value = static_cast<size_t>(layout_.outputs[static_cast<size_t>(output)]);
    Tensor tensor = values_[value].tensor;
    if (layout_.units[value].token) {  // none of them is left out
      Shape shape = tensor.shape();
      shape[0] = request().length;
      shape.Insert(0, rows());
      tensor = tensor.Reshaped(shape);
    }
    // The receiver of the answer may write to it.
    const bool shared = std::find(taken.begin(), taken.end(), tensor.raw()) != taken.end();
    taken.push_back(tensor.raw());
    answer.push_back(
        {signature_.outputs[static_cast<size_t>(output)].name, shared ? tensor.Clone() : tensor});
  }
  return answer;
}

}  // namespace chairlift
