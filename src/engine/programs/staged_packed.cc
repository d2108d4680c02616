// Encoders on packed tokens that are cut into stages between their layers. A stage reads the
// previous stage's results for the tokens of its batch, each sequence at its own length, and the
// model's inputs, packed again. A request that does not fit a batch runs through the whole model.
#include "engine/programs/staged_packed.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/programs/cells/cell_costs.h"
#include "engine/programs/original_model.h"
#include "engine/programs/packing.h"
#include "engine/programs/sequence_signature.h"
#include "engine/programs/single_node.h"
#include "engine/programs/staged_cuts.h"
#include "engine/programs/staged_program.h"
#include "engine/programs/staged_request.h"
#include "engine/programs/staged_task.h"
#include "engine/programs/staging.h"
#include "engine/requests/request_size.h"
#include "graph/stages/stages.h"

namespace chairlift {
namespace {

constexpr int kTimedLength = 64;  // of sequences for timing nodes, if there are enough tokens
// Tokens of a request for choosing the number of stages.
constexpr int kTriedTokens = 32;
constexpr int32_t kManyTokens = 1024;  // in a large batch

struct PackedStage {
  std::string name;
  std::unique_ptr<Executable> executable;
  std::vector<int> inputs;  // values; the first ones are the packed model's inputs
};

// The whole model, for requests that do not pass its stages.
class Uncut final : public SingleNodeProgram {
 public:
  // `packed`: after the passes.
  Uncut(const Signature& signature, const ServingPlan& plan, int cell,
        std::span<const RaggedInput> inputs, std::unique_ptr<OriginalModel> packed,
        std::unique_ptr<OriginalModel> original)
      : SingleNodeProgram("packed", signature, plan, std::numeric_limits<int32_t>::max(), cell),
        inputs_(inputs),
        packed_(std::move(packed)),
        original_(std::move(original)) {}

  StatusOr<Executable*> Packed() { return packed_->Get(); }

 protected:
  StatusOr<Batch> Join(RequestSpan requests) override {
    CHAIRLIFT_ASSIGN_OR_RETURN(Executable* const executable, Packed());
    return Batch{executable, std::make_unique<Packing>(signature_, inputs_, requests)};
  }
  StatusOr<Executable*> Original() override { return original_->Get(); }
  bool RowsAreApart(const ValidatedRequest& /*request*/) const override {
    return SequencesAreApart(inputs_);
  }

 private:
  const std::span<const RaggedInput> inputs_;
  const std::unique_ptr<OriginalModel> packed_;
  const std::unique_ptr<OriginalModel> original_;
};

// With the entries for tokens or sequences along dimension 0: the dimensions before must be 1.
Tensor WithoutLeadingOnes(const Tensor& tensor, const SymbolicShape& spec) {
  Shape shape = tensor.shape();
  for (const Dim& dim : spec.dims()) {
    if (!dim.known()) break;
    shape.Erase(0);
  }
  return tensor.Reshaped(shape);
}

// The shape of such an input with room for a batch.
Shape ShapeInBatch(const SymbolicShape& spec, int64_t room) {
  Shape shape;
  for (const Dim& dim : spec.dims()) shape.Append(dim.known() ? dim.value() : room);
  return shape;
}

class StagedPackedProgram final : public StagedProgram {
 public:
  StagedPackedProgram(Signature signature, ServingPlan plan, StageLayout layout,
                      std::vector<PackedStage> stages, std::unique_ptr<StepCosts> costs,
                      RaggedModel model, std::unique_ptr<OriginalModel> packed,
                      std::unique_ptr<OriginalModel> original,
                      std::unique_ptr<GuardedStagePolicy> policy)
      : StagedProgram(std::move(signature), std::move(plan), std::move(layout), std::move(costs),
                      std::move(policy), kManyTokens),
        stages_(std::move(stages)),
        model_(std::move(model)),
        uncut_(signature_, plan_, num_cells(), model_.inputs, std::move(packed),
               std::move(original)) {}

  const std::string& CellName(int cell) const override {
    return cell < num_cells() ? stages_[static_cast<size_t>(cell)].name : uncut_.CellName(cell);
  }
  bool TakesLong(const InferRequest& request) const override {
    return InputBytes(request) > kQuickBytes;  // masks are read
  }
  StatusOr<ProgramView> View() override {
    CHAIRLIFT_ASSIGN_OR_RETURN(Executable* const whole, uncut_.Packed());
    return ProgramView{.executable = whole,
                       .packed = model_.inputs,
                       .passes = model_.passes,
                       .notes = model_.notes};
  }

  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override {
    if (request.runs_alone || request.load() > plan_.scheduling.max_batch_size) {
      return uncut_.Unfold(std::move(request), parts);
    }
    return std::make_unique<StagedRequest>(layout_, signature_, std::move(request));
  }
  void Run(TaskRun& run, TaskDone done) override {
    if (run.cell == num_cells()) return uncut_.Run(run, std::move(done));
    done(RunStagedTask(run, num_cells(),
                       [&](std::span<const StagedItem> items) { return Compute(items, run); }));
  }

 private:
  // Runs a stage for these requests, one after the other.
  Status Compute(std::span<const StagedItem> items, TaskRun& run);
  StatusOr<std::vector<Tensor>> Inputs(const PackedStage& stage, const Packing& packing,
                                       std::span<const StagedItem> items, Arena& staging) const;

  const std::vector<PackedStage> stages_;
  const RaggedModel model_;  // without its graph
  Uncut uncut_;
};

StatusOr<std::vector<Tensor>> StagedPackedProgram::Inputs(const PackedStage& stage,
                                                          const Packing& packing,
                                                          std::span<const StagedItem> items,
                                                          Arena& staging) const {
  const std::vector<SymbolicSpec>& specs = stage.executable->inputs();
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto value = static_cast<size_t>(stage.inputs[i]);
    if (value < model_.inputs.size()) {
      descs.push_back(packing.DescOf(model_.inputs[value]));
      continue;
    }
    const bool tokens = layout_.units[value].token;
    descs.push_back(
        {specs[i].dtype,
         ShapeInBatch(specs[i].shape, tokens ? packing.token_room() : packing.sequence_room())});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> inputs, Stage(descs, staging));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int value = stage.inputs[i];
    if (static_cast<size_t>(value) < model_.inputs.size()) {
      packing.Fill(model_.inputs[static_cast<size_t>(value)], inputs[i]);
      continue;
    }
    auto* to = static_cast<std::byte*>(inputs[i].raw());
    const std::byte* const end = to + inputs[i].byte_size();
    for (const StagedItem& item : items) {
      const Tensor& from = item.request->value(value);
      std::memcpy(to, from.raw(), from.byte_size());
      to += from.byte_size();
    }
    std::memset(to, 0, static_cast<size_t>(end - to));
  }
  return inputs;
}

Status StagedPackedProgram::Compute(std::span<const StagedItem> items, TaskRun& run) {
  const PackedStage& stage = stages_[static_cast<size_t>(run.cell)];
  std::vector<const ValidatedRequest*> requests;
  requests.reserve(items.size());
  for (const StagedItem& item : items) requests.push_back(&item.request->request());
  const Packing packing(signature_, model_.inputs, requests);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                             Inputs(stage, packing, items, run.memory.staging));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                             stage.executable->Run(inputs, run.team, run.worker, run.memory.compute,
                                                   run.memory.stop, run.memory.timer));
  const std::vector<int>& values = layout_.stages[static_cast<size_t>(run.cell)].outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const SymbolicSpec& spec = stage.executable->outputs()[i];
    outputs[i] = WithoutLeadingOnes(outputs[i], spec.shape);
    const bool tokens = layout_.units[static_cast<size_t>(values[i])].token;
    const int64_t room = tokens ? packing.token_room() : packing.sequence_room();
    if (outputs[i].shape()[0] != room) {
      return Internal("'{}' of a batch of {} has shape {}", spec.name, room,
                      outputs[i].shape().ToString());
    }
  }
  const SharedStageMemory memory = MemoryOf(items);
  for (size_t i = 0; i < items.size(); ++i) {
    const PlaceInBatch first{packing.first_sequence(i), packing.first_token(i)};
    items[i].node->status = items[i].request->Complete(run.cell, outputs, first, memory).status();
  }
  return absl::OkStatus();
}

// Ones, in sequences of at most kTimedLength.
StageInputs OnesOfTokens(const Signature& signature, std::span<const RaggedInput> inputs) {
  const auto make = [&signature, inputs](const Executable& /*whole*/,
                                         int tokens) -> StatusOr<std::vector<Tensor>> {
    const int64_t longest = signature.sequences->max_length;
    int length = kTimedLength;
    while (length > tokens || (longest > 0 && length > longest)) length /= 2;
    const ValidatedRequest request =
        OnesRequest(signature, tokens / std::max(length, 1), std::max(length, 1));
    const ValidatedRequest* const only = &request;
    Arena staging;
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> packed,
                               Packing(signature, inputs, {&only, 1}).Inputs(staging));
    for (Tensor& tensor : packed) tensor = tensor.Clone();
    return packed;
  };
  return {.make = make, .max_rows = kDefaultMaxStagedTokens, .request_rows = kTriedTokens};
}

// By value. Unimplemented has the name of an output that no stage computes.
StatusOr<std::vector<StageLayout::Unit>> UnitsOf(const StagedModel& model,
                                                 std::span<const PackedStage> stages,
                                                 size_t num_inputs) {
  std::vector<StageLayout::Unit> units(model.values.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    for (size_t i = 0; i < model.stages[s].outputs.size(); ++i) {
      const auto value = static_cast<size_t>(model.stages[s].outputs[i]);
      const SymbolicSpec& spec = stages[s].executable->outputs()[i];
      const PackedUnit unit = PackedUnitOf(spec.shape);
      if (unit == PackedUnit::kNone) {
        return Unimplemented("'{}' of shape {} has no entry for each token or sequence", spec.name,
                             spec.shape.ToString());
      }
      const int64_t elements = ShapeInBatch(spec.shape, 1).NumElements();
      units[value] = {.bytes = elements * static_cast<int64_t>(DTypeSize(spec.dtype)),
                      .token = unit == PackedUnit::kToken};
    }
  }
  for (const int value : model.outputs) {
    if (static_cast<size_t>(value) < num_inputs) {
      return Unimplemented("output '{}' is an input", model.values[static_cast<size_t>(value)]);
    }
  }
  return units;
}

// "stage2: 24% of the time, 12 nodes, up to 'layer.5/add'"
std::string NoteOf(const ModelStage& stage) {
  return fmt::format("{}: {:.0f}% of the time, {} node{}, up to '{}'", stage.name,
                     100 * stage.share, stage.graph.nodes.size(),
                     stage.graph.nodes.size() == 1 ? "" : "s", stage.until);
}

struct MadePacked {
  CutModel cut;
  std::vector<PackedStage> stages;
  StageLayout layout;
};

StatusOr<MadePacked> MakeStages(const Graph& graph, const Signature& signature,
                                std::span<const RaggedInput> inputs, const LoadingModel& loading,
                                const ExecutableOptions& options) {
  MadePacked made;
  StageCuts cuts = CutsOf(loading);
  cuts.packed = true;
  CHAIRLIFT_ASSIGN_OR_RETURN(
      made.cut, CutStagedModel(graph, {}, std::move(cuts), OnesOfTokens(signature, inputs), loading,
                               options));
  const StagedModel& model = made.cut.model;
  for (const ModelStage& stage : model.stages) {
    PackedStage& own = made.stages.emplace_back();
    own.name = stage.name;
    own.inputs = stage.inputs;
    CHAIRLIFT_ASSIGN_OR_RETURN(own.executable, Executable::Create(stage.graph, options));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<StageLayout::Unit> units,
                             UnitsOf(model, made.stages, inputs.size()));
  made.layout = StageLayout::Of(model, std::move(units));
  return made;
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeStagedPacked(LoadingModel& model, std::string& refused) {
  const ModelConfig& config = model.config;
  if (!config.exits.empty()) {
    refused = "it has exits, and runs on packed tokens, which all pass all stages";
    return nullptr;
  }
  RaggedModel& ragged = *model.Ragged();
  Signature signature = PackedSignature(ragged, model.graph, config.max_batch_size);
  Graph graph = ragged.graph;  // another kind may need the original
  CHAIRLIFT_RETURN_IF_ERROR(RunPasses(graph, model.executable.disabled_passes).status());
  ExecutableOptions options = model.executable;
  options.passed = true;
  StatusOr<MadePacked> made = MakeStages(graph, signature, ragged.inputs, model, options);
  if (absl::IsUnimplemented(made.status())) {
    refused = Message(made.status());
    ServeUncut(refused, model);
    return nullptr;
  }
  CHAIRLIFT_RETURN_IF_ERROR(made.status());
  std::vector<std::string> names;
  for (const ModelStage& stage : made->cut.model.stages) {
    names.push_back(stage.name);
    ragged.notes.push_back(NoteOf(stage));
  }
  if (!made->cut.tried.empty()) ragged.notes.push_back(made->cut.tried);
  CHAIRLIFT_ASSIGN_OR_RETURN(UsersStaging users, LoadUsersStaging(model, names));
  made->cut.costs.resize(names.size());
  auto costs = std::make_unique<StepCosts>(std::move(made->cut.costs));
  std::vector<CellTypeOptions> types;
  ChooseCellSizes(costs->timed(), config.max_batch_tokens, types);
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan,
                             PlanStagedServing(config, names, std::move(types), costs.get(),
                                               model.load.workers, /*packed=*/true));
  auto original = std::make_unique<OriginalModel>(std::move(model.graph), model.executable);
  ragged.graph = Graph();
  return std::make_unique<StagedPackedProgram>(
      std::move(signature), std::move(plan), std::move(made->layout), std::move(made->stages),
      std::move(costs), std::move(ragged),
      std::make_unique<OriginalModel>(std::move(graph), std::move(options)), std::move(original),
      std::move(users.policy));
}

}  // namespace chairlift
