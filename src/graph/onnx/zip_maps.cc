#include "graph/onnx/zip_maps.h"

#include <algorithm>
#include <unordered_set>

namespace chairlift {
namespace {

void CollectRead(const onnx::GraphProto& graph, std::unordered_set<std::string>& names,
                 int depth = 0) {
  constexpr int kDeepest = 64;  // deeper graphs are refused when they are read
  for (const auto& node : graph.node()) {
    names.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g() || depth >= kDeepest) continue;
      CollectRead(attribute.g(), names, depth + 1);
      for (const auto& output : attribute.g().output()) names.insert(output.name());
    }
  }
}

}  // namespace

std::vector<std::string> DropZipMaps(onnx::GraphProto& graph) {
  std::vector<std::string> dropped;
  const auto is_zip_map = [](const onnx::NodeProto& node) {
    return node.domain() == "ai.onnx.ml" && node.op_type() == "ZipMap" && node.input_size() == 1 &&
           node.output_size() == 1;
  };
  if (std::none_of(graph.node().begin(), graph.node().end(), is_zip_map)) return dropped;
  std::unordered_set<std::string> read;
  CollectRead(graph, read);
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    if (!is_zip_map(node) || read.contains(node.output(0))) continue;
    const std::string& name = node.output(0);
    const auto output = std::find_if(graph.mutable_output()->begin(), graph.mutable_output()->end(),
                                     [&](const auto& info) { return info.name() == name; });
    if (output == graph.mutable_output()->end()) continue;
    output->clear_type();
    auto* const infos = graph.mutable_value_info();
    infos->erase(std::remove_if(infos->begin(), infos->end(),
                                [&](const auto& info) { return info.name() == name; }),
                 infos->end());
    node.clear_domain();
    node.clear_attribute();
    node.set_op_type("Identity");
    dropped.push_back(name);
  }
  return dropped;
}

}  // namespace chairlift
