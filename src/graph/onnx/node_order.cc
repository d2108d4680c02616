// Computes an order in which a file's nodes can run.
#include "graph/onnx/node_order.h"

#include <fmt/format.h>

#include <functional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace chairlift {
namespace {

using NameSet = std::unordered_set<std::string>;

void AddFreeNames(const onnx::GraphProto& graph, NameSet& free);

// What the node reads: its inputs and the outside values that its sub-graphs use.
NameSet Reads(const onnx::NodeProto& node) {
  NameSet reads;
  for (const std::string& name : node.input()) {
    if (!name.empty()) reads.insert(name);
  }
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) AddFreeNames(attribute.g(), reads);
  }
  return reads;
}

// Names that `graph` reads and does not define. The protobuf parser bounds the nesting.
void AddFreeNames(const onnx::GraphProto& graph, NameSet& free) {
  NameSet defined;
  for (const auto& input : graph.input()) defined.insert(input.name());
  for (const auto& tensor : graph.initializer()) defined.insert(tensor.name());
  for (const auto& node : graph.node()) {
    for (const std::string& name : node.output()) defined.insert(name);
  }
  const auto add = [&](const std::string& name) {
    if (!defined.contains(name)) free.insert(name);
  };
  for (const auto& node : graph.node()) {
    for (const std::string& name : Reads(node)) add(name);
  }
  for (const auto& output : graph.output()) add(output.name());
}

}  // namespace

std::string DescribeNode(const onnx::NodeProto& node, int position) {
  if (node.name().empty()) return fmt::format("node {} ({})", position, node.op_type());
  return fmt::format("node '{}' ({})", node.name(), node.op_type());
}

std::unordered_set<std::string> NamesRead(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  NameSet names;
  for (const auto& node : nodes) names.merge(Reads(node));
  return names;
}

StatusOr<std::vector<int>> OrderNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
    absl::FunctionRef<bool(const std::string&)> defined_outside) {
  const int count = nodes.size();
  std::unordered_map<std::string, int> producers;
  for (int i = 0; i < count; ++i) {
    for (const std::string& name : nodes[i].output()) {
      if (name.empty()) continue;
      if (!producers.emplace(name, i).second) {
        return InvalidArgument("value '{}' is defined a second time by {}", name,
                               DescribeNode(nodes[i], i));
      }
    }
  }
  std::vector<std::vector<int>> readers(count);
  std::vector<int> waits_for(count, 0);
  for (int i = 0; i < count; ++i) {
    for (const std::string& name : Reads(nodes[i])) {
      if (const auto it = producers.find(name); it != producers.end()) {
        readers[it->second].push_back(i);
        ++waits_for[i];
      } else if (!defined_outside(name)) {
        return InvalidArgument(
            "{} reads '{}', which nothing defines: no input, initialiser or node has this name; "
            "export the model again",
            DescribeNode(nodes[i], i), name);
      }
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; ++i) {
    if (waits_for[i] == 0) ready.push(i);
  }
  std::vector<int> order;
  order.reserve(count);
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const int reader : readers[i]) {
      if (--waits_for[reader] == 0) ready.push(reader);
    }
  }
  if (static_cast<int>(order.size()) == count) return order;
  for (int i = 0; i < count; ++i) {
    if (waits_for[i] > 0) {
      return InvalidArgument("the graph has a cycle through {} or before it",
                             DescribeNode(nodes[i], i));
    }
  }
  return Internal("nodes were lost while ordering them");
}

}  // namespace chairlift
