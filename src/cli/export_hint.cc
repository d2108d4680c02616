#include "cli/export_hint.h"

#include <fmt/format.h>

#include <algorithm>

namespace chairlift {

bool RunsOneByOne(const ModelMetadata& metadata) {
  if (metadata.programs.empty()) return false;
  const std::string& kind = metadata.programs.back().kind;
  return (kind == "whole" || kind == "staged") && !metadata.batches;
}

int64_t FixedBatch(const ModelMetadata& metadata) {
  if (metadata.inputs.empty() || metadata.inputs[0].shape.empty()) return 0;
  const int64_t batch = metadata.inputs[0].shape[0];
  // A size that is not that of the answers may count something else, such as channels.
  const auto fixed = [batch](const TensorSpec& spec) {
    return !spec.shape.empty() && spec.shape[0] == batch && (batch == 1 || spec.shape.size() > 1);
  };
  const bool inputs = std::all_of(metadata.inputs.begin(), metadata.inputs.end(), fixed);
  const bool outputs = std::all_of(metadata.outputs.begin(), metadata.outputs.end(), fixed);
  return batch > 0 && inputs && (batch == 1 || outputs) ? batch : 0;
}

std::string ExportHint(const ModelMetadata& metadata) {
  if (FixedBatch(metadata) == 0) {
    return "the diagnosis names what prevents batching; docs/guides/exporting.md shows how to "
           "export a model that is batched";
  }
  // An entry for each argument fits whatever the arguments are called in Python.
  const size_t inputs = metadata.inputs.size();
  const std::string shapes =
      inputs == 1 ? R"(({0: "batch"},))" : fmt::format(R"(({{0: "batch"}},) * {})", inputs);
  const char* const setting =
      FixedBatch(metadata) == 1 ? "set 'batch_dim: 0' in model.yaml, or " : "";
  return fmt::format(
      "{}export it with an open first dimension: torch.onnx.export(…, dynamo=True, "
      "dynamic_shapes={}); docs/guides/exporting.md has the other tools",
      setting, shapes);
}

}  // namespace chairlift
