// The rule for Scan of opset 8, which runs its body for every member of a batch.
#include <algorithm>
#include <memory>
#include <utility>

#include "graph/onnx/normalise_rules.h"

namespace chairlift::normalise {

// A scan over the batch, without states, whose body is the scan over time: its outputs are stacked
// on axis 0 again.
Status ScanBatch(OnnxNode& node, Rewriter& rewriter) {
  if (node.inputs.empty() || node.inputs[0] != kNoValue) {
    return Unimplemented("sequence_lens of Scan before opset 9 is not supported");
  }
  const auto* body = node.attributes.Find<std::shared_ptr<const Graph>>("body");
  if (body == nullptr) return InvalidArgument("it has no body");
  node.inputs.erase(node.inputs.begin());

  auto batch_body = std::make_shared<Graph>();
  Node over_time{node.name + "/time", OperatorRegistry::Builtin().Find("", "Scan"), {}, {}, {}};
  over_time.attributes.Set("body", *body);
  over_time.attributes.Set("num_scan_inputs", node.attributes.Int("num_scan_inputs", 0));
  over_time.attributes.Set("scan_input_directions", node.attributes.Ints("directions"));
  const auto add_input = [&](ValueId outer, const char* prefix, bool is_slice) {
    const ValueInfo info = rewriter.info(outer);
    Value value;
    value.name = fmt::format("{}/{}{}", node.name, prefix, over_time.inputs.size());
    value.dtype = info.dtype;
    if (!is_slice) value.shape = info.shape;
    const ValueId id = batch_body->AddValue(std::move(value));
    batch_body->inputs.push_back(id);
    over_time.inputs.push_back(id);
  };
  for (const ValueId id : node.inputs) add_input(id, "slice", /*is_slice=*/true);
  for (const ValueId id : node.captures) add_input(id, "capture", /*is_slice=*/false);
  batch_body->num_captures = static_cast<int>(node.captures.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = batch_body->AddValue({.name = fmt::format("{}/output{}", node.name, i)});
    over_time.outputs.push_back(id);
    batch_body->outputs.push_back(id);
  }
  batch_body->nodes.push_back(std::move(over_time));

  node.attributes = {};
  node.attributes.Set("num_scan_inputs", static_cast<int64_t>(node.inputs.size()));
  node.attributes.Set("body", std::shared_ptr<const Graph>(std::move(batch_body)));
  return absl::OkStatus();
}

}  // namespace chairlift::normalise
