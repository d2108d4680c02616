#include "engine/execution/model.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "batching/policy.h"

namespace chairlift {
namespace {

std::vector<TensorSpec> TensorSpecs(const std::vector<SymbolicSpec>& symbolic) {
  std::vector<TensorSpec> specs;
  for (const SymbolicSpec& from : symbolic) {
    TensorSpec& spec = specs.emplace_back();
    spec.name = from.name;
    spec.dtype = from.dtype;
    if (!from.shape.has_rank()) continue;
    for (const Dim& dim : from.shape.dims()) spec.shape.push_back(dim.known() ? dim.value() : -1);
  }
  return specs;
}

}  // namespace

StatusOr<std::shared_ptr<Model>> Model::Create(ModelMetadata metadata,
                                               std::unique_ptr<Program> program) {
  const ServingPlan& plan = program->plan();
  metadata.platform = std::string(program->platform());
  metadata.inputs = TensorSpecs(program->signature().inputs);
  metadata.outputs = TensorSpecs(program->signature().outputs);
  const RequestRules& rules = program->rules();
  std::erase_if(metadata.inputs, [&](const TensorSpec& input) {
    if (input.name == rules.seeds) return true;
    return std::any_of(rules.controls.begin(), rules.controls.end(),
                       [&](const SequenceControl& control) { return control.input == input.name; });
  });
  for (TensorSpec& output : metadata.outputs) {
    const auto declared = rules.output_dims.find(output.name);
    if (declared == rules.output_dims.end()) continue;
    output.shape = declared->second;
    if (rules.max_rows.value_or(0) > 0) output.shape.insert(output.shape.begin(), -1);
  }
  metadata.max_rows = rules.max_rows;
  metadata.sequences_only = rules.sequences_only;
  metadata.triton_config = rules.shown;
  metadata.shown_states = rules.shown_states;
  metadata.batches = plan.batches;
  metadata.config = plan.config;
  metadata.diagnosis = plan.diagnosis + plan.dropped;
  metadata.cells = program->CellBatchings();
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler,
                             MakeScheduler(plan.config.policy, plan.scheduling));
  std::shared_ptr<Model> model(
      new Model(std::move(metadata), std::move(program), std::move(scheduler)));
  const ModelConfig& config = model->metadata_.config;
  if (config.response_cache_bytes > 0) {
    model->response_cache_ = std::make_shared<ResponseCache>(config.response_cache_bytes);
  }
  if (const RequestRules& own = model->program_->rules();
      !config.sequence_state.empty() || own.sequences_only) {
    CHAIRLIFT_ASSIGN_OR_RETURN(
        model->sequences_,
        Sequences::Create(config, model->program_->signature(), Clock::Steady(), own));
  }
  return model;
}

Model::Model(ModelMetadata metadata, std::unique_ptr<Program> program,
             std::unique_ptr<Scheduler> scheduler)
    : metadata_(std::move(metadata)),
      program_(std::move(program)),
      statistics_(metadata_.name, metadata_.version),
      queue_(metadata_.name, *program_, std::move(scheduler)) {}

Model::~Model() {
  const Status kept = program_->KeepCosts();
  if (!kept.ok()) {
    spdlog::warn("model '{}': the costs learned while it ran cannot be stored: {}", metadata_.name,
                 Message(kept));
  }
}

}  // namespace chairlift
