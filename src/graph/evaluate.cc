#include "graph/evaluate.h"

#include <algorithm>

#include "chairlift/text.h"

namespace chairlift {

StatusOr<std::vector<TensorDesc>> InferConcrete(const Node& node, std::span<const ValueInfo> inputs,
                                                int64_t max_output_bytes) {
  InferContext context(node.attributes, inputs, static_cast<int>(node.outputs.size()));
  if (Status s = node.def->infer(context); !s.ok()) return Annotate(s, node.Describe());
  std::vector<TensorDesc> descs(node.outputs.size());
  for (size_t i = 0; i < descs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    const ValueInfo& info = context.outputs()[i];
    if (!info.shape.concrete()) {
      return Internal("{}: the shape of output {} stays unknown: {}", node.Describe(), i,
                      info.shape.ToString());
    }
    descs[i] = {info.dtype, info.shape.ToShape()};
    auto size = descs[i].shape.Checked(DTypeSize(info.dtype), max_output_bytes);
    if (!size.ok()) {
      return absl::OutOfRangeError(
          fmt::format("{}: output {}: {}", node.Describe(), i, Message(size.status())));
    }
  }
  return descs;
}

namespace {

// Kernels write views of strings that the inputs own; results may outlive those.
Status OwnTexts(std::vector<Tensor>& outputs, int64_t max_bytes) {
  for (Tensor& output : outputs) {
    if (output.dtype() != DType::kBytes) continue;
    const size_t bytes = output.byte_size() + ContentBytes(output);  // with its copy
    if (bytes > static_cast<size_t>(max_bytes)) {
      return absl::OutOfRangeError(fmt::format(
          "strings of {} bytes are larger than the limit of {} bytes", bytes, max_bytes));
    }
    output = output.Clone();
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<Tensor>> EvaluateNode(const Node& node, std::span<const Tensor> inputs,
                                           WeightCache& weights, Team& team, int worker,
                                           int64_t max_output_bytes,
                                           std::span<const Value> values) {
  const int num_outputs = static_cast<int>(node.outputs.size());
  if (node.def->evaluate != nullptr) {
    auto outputs =
        EvaluateOperator(*node.def, {node.attributes, inputs, num_outputs, team, worker});
    if (!outputs.ok()) return Annotate(outputs.status(), node.Describe());
    if (static_cast<int>(outputs->size()) < num_outputs) {
      return Internal("{}: computed {} of {} outputs", node.Describe(), outputs->size(),
                      num_outputs);
    }
    if (Status s = OwnTexts(*outputs, max_output_bytes); !s.ok()) {
      return Annotate(s, node.Describe());
    }
    return outputs;
  }

  std::vector<ValueInfo> infos;
  std::vector<TensorDesc> input_descs;
  std::vector<const void*> input_data;
  for (const Tensor& t : inputs) {
    const bool present = t.present();
    infos.push_back({t.dtype(), present ? SymbolicShape(t.shape()) : SymbolicShape(),
                     present ? &t : nullptr, std::nullopt});
    input_descs.push_back({t.dtype(), t.shape()});
    input_data.push_back(t.raw());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<TensorDesc> output_descs,
                             InferConcrete(node, infos, max_output_bytes));
  if (node.def->is_view) {
    if (output_descs[0].size() != inputs[0].size()) {
      return Internal("{}: {} cannot be seen as {}", node.Describe(), inputs[0].shape().ToString(),
                      output_descs[0].shape.ToString());
    }
    return std::vector<Tensor>{inputs[0].Reshaped(output_descs[0].shape)};
  }

  const auto set_layouts = [&](std::vector<TensorDesc>& descs, const std::vector<ValueId>& ids) {
    for (size_t i = 0; i < ids.size() && !values.empty(); ++i) {
      if (ids[i] != kNoValue) descs[i].layout = values[ids[i]].layout;
    }
  };
  set_layouts(input_descs, node.inputs);
  set_layouts(output_descs, node.outputs);
  const auto filled_up = [](const TensorDesc& d) { return d.present() && d.filled_up(); };
  if (std::any_of(input_descs.begin(), input_descs.end(), filled_up) ||
      std::any_of(output_descs.begin(), output_descs.end(), filled_up)) {
    return Internal("{}: padded blocks of channels are not tensors", node.Describe());
  }
  const std::vector<const Tensor*> constants(inputs.size(), nullptr);
  auto kernel = CompileOperator(
      *node.def, {node.attributes, input_descs, output_descs, constants, weights, team.width()});
  if (!kernel.ok()) return Annotate(kernel.status(), node.Describe());
  std::vector<Tensor> outputs(num_outputs);
  std::vector<void*> output_data(num_outputs, nullptr);
  for (int i = 0; i < num_outputs; ++i) {
    if (!output_descs[i].present()) continue;
    outputs[i] = Tensor::Allocate(output_descs[i].dtype, output_descs[i].shape);
    output_data[i] = outputs[i].raw();
  }
  Tensor scratch;
  if ((*kernel)->scratch_bytes() > 0) {
    scratch =
        Tensor::Allocate(DType::kUInt8, Shape{static_cast<int64_t>((*kernel)->scratch_bytes())});
  }
  const Status status = (*kernel)->Run({input_data, output_data, scratch.raw(), team, worker});
  if (!status.ok()) return Annotate(status, node.Describe());
  if (Status s = OwnTexts(outputs, max_output_bytes); !s.ok()) return Annotate(s, node.Describe());
  return outputs;
}

}  // namespace chairlift
