#include "graph/onnx/operator_attributes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/closest.h"

namespace chairlift {
namespace {

struct OperatorVersion {
  std::string_view domain, op;
  int first_opset;
  std::string_view attributes;  // names with spaces between them
};

// Sorted. Opsets in which an operator's attributes did not change have no row.
constexpr OperatorVersion kVersions[] = {
#include "graph/onnx/operator_attributes.inc"
};

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace

bool IsMark(std::string_view attribute) { return attribute.starts_with("__"); }

Status CheckOperatorHas(std::string_view attribute, std::string_view domain, std::string_view op,
                        int opset) {
  const auto before = [](const OperatorVersion& row,
                         const std::pair<std::string_view, std::string_view>& wanted) {
    return std::pair(row.domain, row.op) < wanted;
  };
  const auto* row =
      std::lower_bound(std::begin(kVersions), std::end(kVersions), std::pair(domain, op), before);
  const OperatorVersion* version = nullptr;
  for (; row != std::end(kVersions) && row->domain == domain && row->op == op; ++row) {
    if (row->first_opset <= opset) version = row;
  }
  if (version == nullptr) return absl::OkStatus();
  const std::vector<std::string_view> names = Words(version->attributes);
  if (std::find(names.begin(), names.end(), attribute) != names.end()) return absl::OkStatus();
  return InvalidArgument(
      "{} of opset {} has no attribute '{}', which might change its result{}; remove the "
      "attribute, "
      "or import the opset that has it",
      op, opset, attribute,
      names.empty() ? "; it has none" : fmt::format("; it has {}", fmt::join(names, ", ")));
}

}  // namespace chairlift
