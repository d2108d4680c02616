#include "engine/model.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <utility>

#include "base/status.h"
#include "batching/policy.h"
#include "engine/model_config.h"
#include "engine/padded_costs.h"
#include "engine/padded_sequences.h"
#include "engine/token_costs.h"
#include "graph/batch_axis.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

TensorSpec ToTensorSpec(const SymbolicSpec& spec) {
  TensorSpec out{.name = spec.name, .dtype = spec.dtype, .shape = {}};
  if (!spec.shape.has_rank()) return out;
  for (const Dim& dim : spec.shape.dims()) out.shape.push_back(dim.known() ? dim.value() : -1);
  return out;
}

// The shapes of a request of one row; nothing where more than the batch varies.
std::optional<std::vector<Shape>> ShapesOfOneRow(const Signature& signature) {
  std::vector<Shape> shapes;
  for (const SymbolicSpec& input : signature.inputs) {
    if (!input.shape.has_rank()) return std::nullopt;
    Shape shape;
    for (int axis = 0; axis < input.shape.rank(); ++axis) {
      const Dim& dim = input.shape[axis];
      if (!dim.known() && !(axis == 0 && signature.batches)) return std::nullopt;
      shape.Append(dim.known() ? dim.value() : 1);
    }
    shapes.push_back(shape);
  }
  return shapes;
}

Status PlanAhead(Executable& executable, const Signature& signature, int workers) {
  const std::optional<std::vector<Shape>> shapes = ShapesOfOneRow(signature);
  if (!shapes) return absl::OkStatus();
  CHAIRLIFT_RETURN_IF_ERROR(executable.Prepare(*shapes, 1).status());
  if (workers > 1) CHAIRLIFT_RETURN_IF_ERROR(executable.Prepare(*shapes, workers).status());
  return absl::OkStatus();
}

std::vector<SymbolicSpec> Specs(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<SymbolicSpec> specs;
  for (ValueId id : ids) {
    const Value& value = graph.values[id];
    specs.push_back({value.name, value.dtype, value.shape});
  }
  return specs;
}

// `notes` takes what was done to the model on the way.
StatusOr<CellProgram> CutIntoCells(const Graph& graph, const ModelConfig& config,
                                   const ExecutableOptions& options,
                                   std::vector<std::string>& notes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      SlicedModel sliced,
      SliceIntoCells(graph, {.max_embedding_bytes = config.max_embedding_bytes}));
  notes = sliced.notes;
  return MakeCellProgram(std::move(sliced), options);
}

}  // namespace

StatusOr<std::shared_ptr<Model>> Model::Load(const std::string& name, const std::string& version,
                                             const ModelSource& source, const ModelConfig& config,
                                             const LoadOptions& load) {
  std::shared_ptr<Model> model(new Model(name, version));
  Signature& signature = model->signature_;
  ModelMetadata& metadata = model->metadata_;
  metadata.name = name;
  metadata.version = version;
  metadata.platform = "onnx_chairlift";
  ExecutableOptions options;
  options.disabled_passes = config.disabled_passes;
  ServingPlan plan;
  load.Tell("reading");
  if (source.cells) {
    CHAIRLIFT_ASSIGN_OR_RETURN(plan, model->CompileCells(source, config, load, options));
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(source.path));
    load.Tell("compiling");
    CHAIRLIFT_ASSIGN_OR_RETURN(plan,
                               model->Compile(std::move(imported.graph), config, load, options));
  }
  signature.batches = plan.batches;
  signature.max_rows = plan.batches ? config.max_batch_size : 0;
  for (const SymbolicSpec& spec : signature.inputs) metadata.inputs.push_back(ToTensorSpec(spec));
  for (const SymbolicSpec& spec : signature.outputs) metadata.outputs.push_back(ToTensorSpec(spec));
  metadata.batches = plan.batches;
  metadata.config = plan.config;
  metadata.diagnosis = plan.diagnosis;
  CHAIRLIFT_ASSIGN_OR_RETURN(model->lane_.scheduler,
                             MakeScheduler(plan.config.policy, plan.scheduling));
  if (config.response_cache_bytes > 0) {
    model->response_cache_ = std::make_shared<ResponseCache>(config.response_cache_bytes);
  }
  if (!config.sequence_state.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(model->sequences_, Sequences::Create(config, signature));
  }
  if (model->executable_ != nullptr) {
    CHAIRLIFT_RETURN_IF_ERROR(PlanAhead(*model->executable_, signature, load.workers));
  }
  return model;
}

Model::~Model() {
  const Status kept = lane_.padded_costs != nullptr  ? lane_.padded_costs->Keep()
                      : lane_.token_costs != nullptr ? lane_.token_costs->Keep()
                                                     : absl::OkStatus();
  if (!kept.ok()) {
    spdlog::warn("what was learnt of the costs of model '{}' is lost: {}", metadata_.name,
                 Message(kept));
  }
}

StatusOr<ServingPlan> Model::ServeCells(CellProgram program, std::vector<CellTypeOptions> types,
                                        const std::string& what, const ModelConfig& config,
                                        const LoadOptions& load) {
  cells_ = std::make_shared<const CellProgram>(std::move(program));
  const std::vector<std::unique_ptr<Cell>>& cells = cells_->cells;
  lane_.NumberTypes(static_cast<int>(cells.size()));
  // Sizes are measured where they would count.
  const bool open =
      config.max_batch_size == 0 && (config.policy.empty() || config.policy == "cellular");
  lane_.costs = FindCellCosts(cells, load.workers, load.time_cells && open, load.TellTiming());
  ChooseCellSizes(lane_.costs, config.max_batch_size, types);
  std::vector<std::string> names;
  names.reserve(cells.size());
  for (const auto& cell : cells) names.push_back(cell->name());
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan,
                             PlanCellServing(config, what, names, std::move(types)));
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellTypeOptions& type = plan.scheduling.cell_types[i];
    CellBatching& told = metadata_.cells.emplace_back();
    told.name = names[i];
    told.min_batch_size = std::max(type.min_batch_size, 1);
    told.max_batch_size =
        type.max_batch_size > 0 ? type.max_batch_size : plan.scheduling.max_batch_size;
    for (const auto& [rows, cost] : lane_.costs[i]) told.costs[rows] = cost;
  }
  return plan;
}

StatusOr<ServingPlan> Model::CompileCells(const ModelSource& source, const ModelConfig& config,
                                          const LoadOptions& load,
                                          const ExecutableOptions& options) {
  if (!WantsCells(config.policy)) {
    return InvalidArgument("policy '{}' cannot serve a model made of cells", config.policy);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ManifestProgram made,
                             MakeCellProgram(*source.cells, source.path, options));
  signature_.inputs = std::move(made.inputs);
  signature_.outputs = std::move(made.outputs);
  return ServeCells(std::move(made.program), std::move(made.types), "made of cells", config, load);
}

StatusOr<ServingPlan> Model::Compile(Graph graph, const ModelConfig& config,
                                     const LoadOptions& load, const ExecutableOptions& options) {
  // Before the passes, whose operators the proofs do not know.
  Status no_cells;
  if (WantsCells(config.policy)) {
    std::vector<std::string> notes;
    StatusOr<CellProgram> program = CutIntoCells(graph, config, options, notes);
    if (program.ok()) {
      signature_.inputs = Specs(graph, graph.inputs);
      signature_.outputs = Specs(graph, graph.outputs);
      std::string what = "sequences vary in length and go through recurrences: cut into cells";
      for (const std::string& note : notes) what += "; " + note;
      return ServeCells(*std::move(program), {}, what, config, load);
    }
    no_cells = program.status();
    if (NeedsCells(config.policy)) {
      return InvalidArgument("policy '{}' cannot serve this model: {}", config.policy,
                             Message(no_cells));
    }
  }
  StatusOr<RaggedModel> ragged = Unimplemented("policy '{}' does not", config.policy);
  if (WantsTokens(config.policy) || NeedsPadding(config.policy)) ragged = MakeRagged(graph);
  if (ragged.ok() && WantsTokens(config.policy)) {
    signature_.inputs = Specs(graph, graph.inputs);
    signature_.outputs = Specs(graph, graph.outputs);
    return ServeTokens(*std::move(ragged), graph, config, load, options);
  }
  if (!config.policy.empty() && WantsTokens(config.policy)) {
    return InvalidArgument("policy '{}' cannot serve this model: {}", config.policy,
                           Message(ragged.status()));
  }
  BatchAxisReport batching = AnalyseBatchAxis(graph);
  const bool by_class = !batching.batches && !batching.inputs_share && config.policy != "none" &&
                        config.max_batch_size != 1 && load.background != nullptr &&
                        ClassForms::MayHelp(graph);
  const Graph imported = by_class ? graph : Graph();
  CHAIRLIFT_ASSIGN_OR_RETURN(executable_, Executable::Create(std::move(graph), options));
  signature_.inputs = executable_->inputs();
  signature_.outputs = executable_->outputs();
  if (config.policy.empty() || NeedsPadding(config.policy)) {
    StatusOr<SequenceSignature> padding = FindPadding(ragged, batching.batches, *executable_);
    if (padding.ok()) {
      return ServePadded(*std::move(padding), ragged.ok() ? "" : Message(ragged.status()), config,
                         load);
    }
    if (NeedsPadding(config.policy)) {
      return InvalidArgument("policy '{}' cannot serve this model: {}", config.policy,
                             Message(padding.status()));
    }
  }
  if (!by_class) return PlanServing(config, batching);
  batching.batches = true;
  batching.why +=
      "; requests that are equal in scalars and sizes share batches, where that is proved of the "
      "model specialised for them";
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan, PlanServing(config, batching));
  plan.batches = false;  // not whatever they bring
  forms_ =
      std::make_shared<ClassForms>(fmt::format("{} version {}", metadata_.name, metadata_.version),
                                   imported, options, plan.config.max_batch_size, *load.background);
  return plan;
}

StatusOr<ServingPlan> Model::ServeTokens(RaggedModel ragged, const Graph& original,
                                         const ModelConfig& config, const LoadOptions& load,
                                         const ExecutableOptions& options) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ragged_, MakeRaggedProgram(std::move(ragged), original, options));
  signature_.sequences = ragged_->sequences;
  lane_.NumberTypes(1);
  lane_.token_costs =
      FindTokenCosts(signature_, *ragged_, load.workers, load.time_cells, load.TellTiming());
  TokenCosts* const costs = lane_.token_costs.get();
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan,
      PlanTokenServing(config, costs == nullptr ? nullptr : &costs->costs, load.workers));
  plan.scheduling.team_costs = costs;
  return plan;
}

StatusOr<ServingPlan> Model::ServePadded(SequenceSignature sequences, const std::string& not_ragged,
                                         const ModelConfig& config, const LoadOptions& load) {
  signature_.sequences = std::move(sequences);
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan, PlanPaddedServing(config, not_ragged, load.workers));
  lane_.NumberTypes(1);
  lane_.padded_costs = FindPaddedCosts(signature_, *executable_, plan.scheduling.max_batch_size,
                                       load.workers, load.time_cells, load.TellTiming());
  plan.scheduling.costs = &lane_.padded_costs->costs;
  return plan;
}

CellType Model::Lane::HoldType(int cell, const ShapeKey& key) {
  const auto [it, fresh] = types_.try_emplace({cell, key}, 0);
  if (fresh) {
    std::vector<CellType>& free = free_[cell];
    if (free.empty()) {
      it->second = static_cast<CellType>(entries_.size());
      entries_.emplace_back();
    } else {
      it->second = free.back();
      free.pop_back();
    }
    entries_[it->second].cell = cell;
    entries_[it->second].key = key;
  }
  ++entries_[it->second].holders;
  return it->second;
}

void Model::Lane::NumberTypes(int cells) {
  for (int cell = 0; cell < cells; ++cell) {
    free_[cell].push_back(static_cast<CellType>(entries_.size()));
    entries_.emplace_back().cell = cell;
  }
}

Duration Model::Lane::ExpectedCost(const Task& task) const {
  if (padded_costs != nullptr) return padded_costs->costs.Cost(0, task.rows, task.length);
  if (token_costs != nullptr) return token_costs->costs.Cost(TokenCosts::kAlone, task.rows, 0);
  const TypeEntry& type = entries_[task.type];
  if (costs.empty() || costs[type.cell].empty()) return type.mean_cost;
  return Duration(static_cast<int64_t>(
      TabulatedCosts::CostNs(costs[type.cell], task.rows + task.padding_rows)));
}

void Model::Lane::NoteCost(const Task& task, bool helped, Duration cost) {
  if (padded_costs != nullptr && !helped) padded_costs->Learn(task.rows, task.length, cost);
  if (token_costs != nullptr) token_costs->Learn(task, helped, cost);
  Duration& mean = entries_[task.type].mean_cost;
  mean = (3 * mean + cost) / 4;
}

void Model::Lane::ReleaseType(CellType type) {
  TypeEntry& entry = entries_[type];
  if (--entry.holders > 0) return;
  types_.erase({entry.cell, entry.key});
  free_[entry.cell].push_back(type);
}

}  // namespace chairlift
