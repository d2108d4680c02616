#include "graph/onnx/zip_maps.h"

#include <fmt/format.h>

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

// How often the name is read; nodes inside sub-graphs count.
int CountReaders(const onnx::GraphProto& graph, const std::string& name, int depth = 0) {
  constexpr int kDeepest = 64;
  int count = 0;
  for (const auto& node : graph.node()) {
    count += static_cast<int>(std::count(node.input().begin(), node.input().end(), name));
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g() && depth < kDeepest) {
        count += CountReaders(attribute.g(), name, depth + 1);
      }
    }
  }
  for (const auto& output : graph.output()) count += output.name() == name;
  return count;
}

// The keys of a DictVectorizer, as text; none if they are not of this type.
std::vector<std::string> VocabularyOf(const onnx::NodeProto& node, int key_type) {
  std::vector<std::string> keys;
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == "string_vocabulary" && key_type == onnx::TensorProto::STRING) {
      keys.assign(attribute.strings().begin(), attribute.strings().end());
    }
    if (attribute.name() == "int64_vocabulary" && key_type == onnx::TensorProto::INT64) {
      for (const int64_t key : attribute.ints()) keys.push_back(fmt::format("{}", key));
    }
  }
  return keys;
}

std::string ListOfKeys(const std::vector<std::string>& keys) {
  constexpr size_t kMostNamed = 32, kLongest = 64;
  std::string list;
  for (size_t i = 0; i < std::min(keys.size(), kMostNamed); ++i) {
    list += fmt::format("{}{}", i == 0 ? "" : ", ", keys[i].substr(0, kLongest));
  }
  return keys.size() <= kMostNamed ? list : fmt::format("{}, … ({} in all)", list, keys.size());
}

}  // namespace

std::vector<std::string> DropDictVectorizers(onnx::GraphProto& graph) {
  std::vector<std::string> notes;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    if (node.domain() != "ai.onnx.ml" || node.op_type() != "DictVectorizer" ||
        node.input_size() != 1 || node.output_size() != 1) {
      continue;
    }
    const std::string name = node.input(0);
    const auto input = std::find_if(graph.mutable_input()->begin(), graph.mutable_input()->end(),
                                    [&](const auto& info) { return info.name() == name; });
    if (input == graph.mutable_input()->end() || !input->type().has_map_type() ||
        CountReaders(graph, name) != 1) {
      continue;
    }
    const onnx::TypeProto::Map map = input->type().map_type();
    const int value = map.value_type().tensor_type().elem_type();
    const bool number = value == onnx::TensorProto::FLOAT || value == onnx::TensorProto::DOUBLE ||
                        value == onnx::TensorProto::INT64;
    const std::vector<std::string> keys = VocabularyOf(node, map.key_type());
    if (!number || keys.empty()) continue;
    auto* const tensor = input->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(value);
    tensor->mutable_shape()->add_dim()->set_dim_param(name + "_rows");
    tensor->mutable_shape()->add_dim()->set_dim_value(static_cast<int64_t>(keys.size()));
    node.clear_domain();
    node.clear_attribute();
    node.set_op_type("Identity");
    notes.push_back(
        fmt::format("input '{}' is a tensor [rows,{}] instead of a map; its columns: {}", name,
                    keys.size(), ListOfKeys(keys)));
  }
  return notes;
}

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
