#include "graph/rename_ports.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/closest.h"
#include "base/status.h"

namespace chairlift {
namespace {

constexpr std::string_view kNumber = "{i}";

// The digits in `name` at the place of `pattern`'s number; nothing if it does not match.
std::optional<std::string_view> NumberIn(std::string_view name, std::string_view pattern) {
  const size_t at = pattern.find(kNumber);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = pattern.substr(0, at);
  const std::string_view behind = pattern.substr(at + kNumber.size());
  if (name.size() <= before.size() + behind.size() || !name.starts_with(before) ||
      !name.ends_with(behind)) {
    return std::nullopt;
  }
  name.remove_prefix(before.size());
  name.remove_suffix(behind.size());
  if (name.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return name;
}

int NumbersInName(std::string_view name) {
  int count = 0;
  for (size_t at = 0; (at = name.find(kNumber, at)) != std::string_view::npos; ++at) ++count;
  return count;
}

}  // namespace

Status RenamePorts(Graph& graph, const std::map<std::string, std::string>& names) {
  for (const auto& [from, to] : names) {
    if (NumbersInName(from) == NumbersInName(to) && NumbersInName(from) <= 1) continue;
    return InvalidArgument(
        "tensor_names: '{}': '{}' must have {} as often as the other, once at most", from, to,
        kNumber);
  }
  std::set<ValueId> ports(graph.inputs.begin(), graph.inputs.end());
  ports.insert(graph.outputs.begin(), graph.outputs.end());
  std::set<std::string> taken;
  for (size_t id = 0; id < graph.values.size(); ++id) taken.insert(graph.values[id].name);

  std::set<std::string_view> used;
  std::vector<std::string> old_names;
  std::vector<std::pair<ValueId, std::string>> renamed;
  for (const ValueId id : ports) {
    const std::string& name = graph.values[static_cast<size_t>(id)].name;
    old_names.push_back(name);
    if (const auto whole = names.find(name); whole != names.end()) {
      used.insert(whole->first);
      renamed.emplace_back(id, whole->second);
      continue;
    }
    std::string_view fits;
    for (const auto& [from, to] : names) {
      const std::optional<std::string_view> number = NumberIn(name, from);
      if (!number) continue;
      if (!fits.empty()) {
        return InvalidArgument("tensor_names: '{}' fits both '{}' and '{}'", name, fits, from);
      }
      fits = from;
      std::string served = to;
      renamed.emplace_back(id, served.replace(served.find(kNumber), kNumber.size(), *number));
    }
    if (!fits.empty()) used.insert(fits);
  }
  for (const auto& [from, to] : names) {
    if (used.contains(from)) continue;
    return InvalidArgument("tensor_names: the model has no input or output '{}'{}", from,
                           KnownNames(from, old_names));
  }
  for (const auto& [id, name] : renamed) taken.erase(graph.values[static_cast<size_t>(id)].name);
  for (const auto& [id, name] : renamed) {
    if (!taken.insert(name).second) {
      return InvalidArgument("tensor_names: '{}' cannot become '{}': there is a value of that name",
                             graph.values[static_cast<size_t>(id)].name, name);
    }
  }
  for (auto& [id, name] : renamed) graph.values[static_cast<size_t>(id)].name = std::move(name);
  return absl::OkStatus();
}

}  // namespace chairlift
