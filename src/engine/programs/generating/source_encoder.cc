#include "engine/programs/generating/source_encoder.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "engine/programs/packing.h"
#include "engine/programs/staging.h"

namespace chairlift {
namespace {

// For a model that is not packed: the tokens, then the mask.
std::vector<RaggedInput> InputsOf(const SourceModel& model) {
  if (model.packed) return model.inputs;
  std::vector<RaggedInput> inputs = {{RaggedRole::kTokens, 0}};
  if (model.mask != DType::kUndefined) inputs.push_back({RaggedRole::kTokens, 1});
  return inputs;
}

}  // namespace

SourceEncoder::SourceEncoder(const SourceModel& model)
    : packed_(model.packed),
      mask_(model.mask),
      features_(model.features),
      inputs_(InputsOf(model)) {}

StatusOr<std::unique_ptr<SourceEncoder>> SourceEncoder::Create(SourceModel model,
                                                               const ExecutableOptions& options) {
  Graph graph = std::move(model.graph);
  std::unique_ptr<SourceEncoder> encoder(new SourceEncoder(model));
  CHAIRLIFT_ASSIGN_OR_RETURN(encoder->executable_, Executable::Create(std::move(graph), options));
  return encoder;
}

Status SourceEncoder::Run(std::span<const SourceTokens> sources, PagedStep& step, Team& team,
                          int worker, WorkerMemory& memory) {
  if (features_) {
    for (const SourceTokens& source : sources) {
      CHAIRLIFT_RETURN_IF_ERROR(RunFeatures(source, step, team, worker, memory));
    }
    return absl::OkStatus();
  }
  if (packed_) return RunTogether(sources, step, team, worker, memory);
  for (size_t i = 0; i < sources.size(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(RunTogether(sources.subspan(i, 1), step, team, worker, memory));
  }
  return absl::OkStatus();
}

Status SourceEncoder::RunFeatures(const SourceTokens& source, PagedStep& step, Team& team,
                                  int worker, WorkerMemory& memory) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                             executable_->Run({{source.features}}, team, worker, memory.compute,
                                              memory.stop, memory.timer));
  for (size_t i = 0; i < outputs.size(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(
        step.Write(i / 2, i % 2 == 0, outputs[i], 0, features_->length, source.blocks));
  }
  return absl::OkStatus();
}

Status SourceEncoder::RunTogether(std::span<const SourceTokens> sources, PagedStep& step,
                                  Team& team, int worker, WorkerMemory& memory) {
  int64_t tokens = 0;
  for (const SourceTokens& source : sources) tokens += static_cast<int64_t>(source.tokens.size());
  const Shape rows = packed_ ? Shape{TokenRoom(tokens)} : Shape{1, tokens};
  const int64_t room = SequenceRoom(static_cast<int64_t>(sources.size()));
  std::vector<TensorDesc> descs;
  for (const RaggedInput& input : inputs_) {
    const bool mask = input.role == RaggedRole::kTokens && input.source == 1;
    const bool sequences =
        input.role == RaggedRole::kOffsets || input.role == RaggedRole::kRequests;
    descs.push_back({mask ? mask_ : DType::kInt64, sequences ? Shape{room + 1} : rows});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> staged, Stage(descs, memory.staging));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Tensor& tensor = staged[i];
    if (tensor.dtype() == DType::kInt32) {  // the mask
      std::fill_n(tensor.data<int32_t>(), tensor.size(), 1);
      continue;
    }
    auto* to = tensor.data<int64_t>();
    std::fill_n(to, tensor.size(), 0);
    int64_t end = 0;
    for (const SourceTokens& source : sources) {
      const auto count = static_cast<int64_t>(source.tokens.size());
      if (inputs_[i].role == RaggedRole::kOffsets) {
        *++to = end += count;
      } else if (inputs_[i].role == RaggedRole::kRequests) {
        *++to = ++end;
      } else if (inputs_[i].role == RaggedRole::kPositions) {
        for (int64_t place = 0; place < count; ++place) *to++ = place;
      } else if (inputs_[i].source == 1) {
        to = std::fill_n(to, count, 1);
      } else {
        to = std::copy(source.tokens.begin(), source.tokens.end(), to);
      }
    }
    if (inputs_[i].role == RaggedRole::kOffsets || inputs_[i].role == RaggedRole::kRequests) {
      std::fill(to, tensor.data<int64_t>() + tensor.size(), end);
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const std::vector<Tensor> outputs,
      executable_->Run(staged, team, worker, memory.compute, memory.stop, memory.timer));
  int64_t first = 0;
  for (const SourceTokens& source : sources) {
    const auto count = static_cast<int64_t>(source.tokens.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      CHAIRLIFT_RETURN_IF_ERROR(
          step.Write(i / 2, i % 2 == 0, outputs[i], first, count, source.blocks));
    }
    first += count;
  }
  return absl::OkStatus();
}

}  // namespace chairlift
