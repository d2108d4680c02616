#include "engine/repository/load_model.h"

#include <utility>

#include "base/renamed.h"
#include "base/status.h"
#include "engine/programs/makers.h"
#include "engine/repository/model_config.h"
#include "engine/repository/model_folder.h"
#include "ops/linear/bfloat16_gemm.h"
#include "ops/linear/int8_gemm.h"

namespace chairlift {

StatusOr<std::shared_ptr<Model>> LoadModel(LoadingModel model, const std::string& version) {
  model.config.policy = CurrentPolicy(model.config.policy, model.name);
  CHAIRLIFT_RETURN_IF_ERROR(CheckConfig(model.config));
  ModelMetadata metadata;
  metadata.name = model.name;
  metadata.version = version;
  if (model.source.pipeline && model.source.pipeline->classes) {
    metadata.labels = model.source.pipeline->classes->labels;
  }
  model.name = fmt::format("{} version {}", model.name, version);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                             MakeProgram(model, metadata.programs));
  if (model.executable.round_products_to == DType::kBFloat16) {
    program->Note(fmt::format("products with constant weights in bfloat16 ({})",
                              BFloat16KernelName(MachineBFloat16Kernel())));
  } else if (model.executable.round_products_to == DType::kInt8) {
    program->Note(fmt::format("products with constant weights in int8 ({})",
                              Int8KernelName(MachineInt8Kernel())));
  }
  CHAIRLIFT_RETURN_IF_ERROR(program->SetRules(model.source.rules));
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<Model> made,
                             Model::Create(std::move(metadata), std::move(program)));
  CHAIRLIFT_RETURN_IF_ERROR(CheckTensors(model.source.ports, made->metadata()));
  return made;
}

StatusOr<std::shared_ptr<Model>> LoadModel(const std::string& name, const std::string& version,
                                           const ModelSource& source, const ModelConfig& config,
                                           const LoadOptions& load) {
  CHAIRLIFT_ASSIGN_OR_RETURN(LoadingModel model, LoadingModel::Read(name, source, config, load));
  return LoadModel(std::move(model), version);
}

}  // namespace chairlift
