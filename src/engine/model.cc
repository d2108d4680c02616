#include "engine/model.h"

#include <optional>
#include <utility>

#include "base/status.h"
#include "batching/policy.h"
#include "engine/model_config.h"
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

}  // namespace

StatusOr<std::shared_ptr<Model>> Model::Load(const std::string& name, const std::string& version,
                                             const std::filesystem::path& file,
                                             const ModelConfig& config, int workers) {
  std::shared_ptr<Model> model(new Model(name, version));
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(file));
  // Before the passes, whose operators the proof does not know.
  const BatchAxisReport batching = AnalyseBatchAxis(imported.graph);
  ExecutableOptions options;
  options.disabled_passes = config.disabled_passes;
  CHAIRLIFT_ASSIGN_OR_RETURN(model->executable_,
                             Executable::Create(std::move(imported.graph), options));

  Signature& signature = model->signature_;
  signature.inputs = model->executable_->inputs();
  signature.outputs = model->executable_->outputs();

  ModelMetadata& metadata = model->metadata_;
  metadata.name = name;
  metadata.version = version;
  metadata.platform = "onnx_chairlift";
  for (const SymbolicSpec& spec : signature.inputs) metadata.inputs.push_back(ToTensorSpec(spec));
  for (const SymbolicSpec& spec : signature.outputs) metadata.outputs.push_back(ToTensorSpec(spec));

  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan, PlanServing(config, batching));
  signature.batches = plan.batches;
  signature.max_rows = plan.batches ? config.max_batch_size : 0;
  metadata.batches = plan.batches;
  metadata.config = plan.config;
  metadata.diagnosis = plan.diagnosis;
  CHAIRLIFT_ASSIGN_OR_RETURN(model->lane_.scheduler,
                             MakeScheduler(plan.config.policy, plan.scheduling));
  CHAIRLIFT_RETURN_IF_ERROR(PlanAhead(*model->executable_, signature, workers));
  return model;
}

CellType Model::Lane::TypeOf(const ShapeKey& key) {
  const auto [it, fresh] = types_.try_emplace(key, 0);
  if (fresh) {
    if (free_.empty()) {
      it->second = static_cast<CellType>(entries_.size());
      entries_.emplace_back();
    } else {
      it->second = free_.back();
      free_.pop_back();
    }
    entries_[it->second].key = key;
  }
  ++entries_[it->second].requests;
  return it->second;
}

void Model::Lane::ReleaseType(CellType type) {
  if (--entries_[type].requests > 0) return;
  types_.erase(entries_[type].key);
  free_.push_back(type);
}

}  // namespace chairlift
