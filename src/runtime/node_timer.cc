#include "runtime/node_timer.h"

#include <algorithm>

#include "base/status.h"

namespace chairlift {
namespace {

std::vector<TensorDesc> DescsOf(const std::vector<Operand>& operands) {
  std::vector<TensorDesc> descs;
  descs.reserve(operands.size());
  for (const Operand& operand : operands) descs.push_back(operand.desc);
  return descs;
}

}  // namespace

std::string PlannedNode::Shapes() const {
  std::string text;
  const auto append = [&](const std::vector<Operand>& operands) {
    const char* separator = "";
    for (const Operand& operand : operands) {
      if (!operand.desc.present()) continue;
      text += fmt::format("{}{}", separator, operand.desc.shape.ToString());
      separator = ", ";
    }
  };
  append(inputs);
  text += " -> ";
  append(outputs);
  return text;
}

double PlannedNode::Flops() const {
  if (node.def->multiply_adds == nullptr) return 0;
  return 2 * node.def->multiply_adds(node.attributes, DescsOf(inputs), DescsOf(outputs));
}

double PlannedNode::Bytes() const {
  double written = 0, read = 0;
  for (const Operand& operand : outputs) written += static_cast<double>(operand.desc.byte_size());
  for (const Operand& operand : inputs) {
    const auto bytes = static_cast<double>(operand.desc.byte_size());
    // Products read all of their weights; other operators look up one table row per output row.
    const bool table = operand.place.kind == Place::kKnown && node.def->multiply_adds == nullptr;
    read += table ? std::min(bytes, written) : bytes;
  }
  return read + written - untouched_bytes;
}

}  // namespace chairlift
