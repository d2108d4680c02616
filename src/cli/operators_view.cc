#include "cli/operators_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "cli/picture.h"
#include "cli/terminal.h"

namespace chairlift {
namespace {

// Operators whose preferred batch sizes differ by a smaller factor are considered similar.
constexpr int kDiverse = 4;
constexpr double kOfTheTime = 0.08;  // minimum share of each side

double UsPerRow(const std::pair<const int, Duration>& cost) {
  return static_cast<double>(cost.second.count()) * 1e-3 / cost.first;
}

double UsOfOne(const CostByRows& costs) {
  const auto one = costs.find(1);
  return one == costs.end() ? 0 : UsPerRow(*one);
}

std::set<int> SizesTimed(std::span<const CostByRows> costs) {
  std::set<int> sizes;
  for (const CostByRows& of_node : costs) {
    for (const auto& [rows, cost] : of_node) sizes.insert(rows);
  }
  return sizes;
}

// Operators of one kind, or of one stage.
struct OperatorGroup {
  std::string name = {};
  std::vector<CostByRows> costs = {};  // by node
  CostByRows sum = {};

  void Add(const CostByRows& of_node) {
    if (!of_node.empty()) costs.push_back(of_node);
  }
  // "1", or "2, its operators 1 to 16".
  std::string Preferred() const {
    int least = PreferredRows(costs.front()), most = least;
    for (const CostByRows& of_node : costs) {
      least = std::min(least, PreferredRows(of_node));
      most = std::max(most, PreferredRows(of_node));
    }
    const int whole = PreferredRows(sum);
    return least == whole && most == whole ? std::to_string(whole)
                                           : fmt::format("{} (each {} to {})", whole, least, most);
  }
};

void AddRow(Table& table, const OperatorGroup& group, const std::set<int>& sizes, double all) {
  std::vector<std::string> row = {group.name, std::to_string(group.costs.size()),
                                  fmt::format("{:.1f}%", 100 * UsOfOne(group.sum) / all),
                                  group.Preferred()};
  for (const int size : sizes) {
    const auto cost = group.sum.find(size);
    row.push_back(cost == group.sum.end() ? "" : fmt::format("{:.4g}", UsPerRow(*cost)));
  }
  table.Add(std::move(row));
}

std::vector<OperatorGroup> ByKind(const Graph& graph, std::span<const CostByRows> costs) {
  std::map<std::string, OperatorGroup> kinds;
  for (size_t n = 0; n < costs.size(); ++n) {
    if (costs[n].empty()) continue;
    OperatorGroup& kind = kinds[graph.nodes[n].def->name];
    kind.name = graph.nodes[n].def->name;
    kind.Add(costs[n]);
  }
  std::vector<OperatorGroup> groups;
  for (auto& [name, kind] : kinds) {
    kind.sum = SumOfCosts(kind.costs);
    groups.push_back(std::move(kind));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return UsOfOne(a.sum) > UsOfOne(b.sum); });
  return groups;
}

// "78% of the time is in operators that prefer batches of 1, 15% in those of 32 (Gemm)": shares of
// the time of one row, by preferred size.
std::string OperatorDiversity(const Graph& graph, std::span<const CostByRows> costs) {
  struct Share {
    double us = 0;
    std::map<std::string, double> kinds;
  };
  std::map<int, Share> by_size;
  double all = 0;
  for (size_t n = 0; n < costs.size(); ++n) {
    if (costs[n].empty()) continue;
    Share& share = by_size[PreferredRows(costs[n])];
    const double us = UsOfOne(costs[n]);
    share.us += us;
    share.kinds[graph.nodes[n].def->name] += us;
    all += us;
  }
  std::vector<std::string> parts;
  int least = 0, most = 0;
  double below = 0;
  for (const auto& [size, share] : by_size) {
    if (below < kOfTheTime * all && below + share.us >= kOfTheTime * all) least = size;
    if (below < (1 - kOfTheTime) * all) most = size;
    below += share.us;
    if (share.us < 0.01 * all) continue;
    const auto slowest =
        std::max_element(share.kinds.begin(), share.kinds.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    parts.push_back(fmt::format("{:.0f}% in batches of {} (mostly {})", 100 * share.us / all, size,
                                slowest->first));
  }
  return fmt::format("operators: preferred batch sizes {}, by share of the time: {}",
                     most >= kDiverse * least ? "differ" : "are similar", fmt::join(parts, ", "));
}

std::string InputDiversity(const std::vector<SymbolicSpec>& inputs) {
  for (const SymbolicSpec& input : inputs) {
    if (!input.shape.has_rank()) {
      return fmt::format("inputs: sizes differ: '{}' has any number of dimensions", input.name);
    }
    for (int axis = 1; axis < input.shape.rank(); ++axis) {
      if (input.shape[axis].known()) continue;
      return fmt::format("inputs: sizes differ: '{}' varies in dimension {}", input.name, axis);
    }
  }
  return "inputs: all rows have the same size";
}

}  // namespace

std::string OperatorsTable(const Graph& graph, std::span<const CostByRows> costs,
                           std::span<const NodeRange> stages) {
  const std::set<int> sizes = SizesTimed(costs);
  double all = 0;
  for (const CostByRows& of_node : costs) all += UsOfOne(of_node);
  std::vector<std::string> head = {"operators", "nodes", "share", "preferred batch"};
  for (const int size : sizes) head.push_back(fmt::format("b={}", size));
  Table table(std::move(head));
  for (const OperatorGroup& kind : ByKind(graph, costs)) AddRow(table, kind, sizes, all);
  for (const NodeRange& stage : stages) {
    OperatorGroup group{.name = stage.name};
    for (size_t n = stage.first; n < stage.last; ++n) group.Add(costs[n]);
    if (group.costs.empty()) continue;
    group.sum = SumOfCosts(group.costs);
    AddRow(table, group, sizes, all);
  }
  return table.ToString();
}

std::vector<std::string> Diversities(const std::vector<SymbolicSpec>& inputs, const Graph& graph,
                                     std::span<const CostByRows> costs) {
  return {InputDiversity(inputs), OperatorDiversity(graph, costs)};
}

std::string OperatorsSvg(const std::string& model, const Graph& graph,
                         std::span<const CostByRows> costs, std::span<const NodeRange> stages) {
  constexpr double kLeft = 70, kTop = 100, kWidth = 700, kHeight = 300, kBelow = 105;
  constexpr size_t kColours = 7, kNamed = 10;
  std::vector<size_t> run;  // nodes that are
  double low = 1e300, high = 0;
  for (size_t n = 0; n < costs.size(); ++n) {
    if (costs[n].empty()) continue;
    run.push_back(n);
    for (const auto& cost : costs[n]) {
      low = std::min(low, UsPerRow(cost));
      high = std::max(high, UsPerRow(cost));
    }
  }
  if (run.empty()) low = high = 1;
  low = std::pow(10, std::floor(std::log10(low)));
  high = std::pow(10, std::max(std::ceil(std::log10(high)), std::log10(low) + 1));
  const double step = kWidth / static_cast<double>(std::max<size_t>(run.size(), 2) - 1);
  const auto x = [&](size_t i) { return kLeft + step * static_cast<double>(i); };
  const auto y = [&](double us) {
    return kTop + kHeight * (1 - std::log(us / low) / std::log(high / low));
  };
  std::string svg =
      PictureHead(kPictureWidth, kTop + kHeight + kBelow, model + ": time of operators",
                  "a dot is one operator at one batch size; lower is faster");
  const auto out = std::back_inserter(svg);
  for (double us = low; us <= high * 1.001; us *= 10) {
    fmt::format_to(out,
                   "<path class=\"grid\" d=\"M{},{:.1f} h{}\"/>"
                   "<text class=\"note\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
                   kLeft - 6, y(us), kWidth + 12, kLeft - 12, y(us) + 4, us);
  }
  fmt::format_to(out,
                 "<text class=\"note\" transform=\"translate(18,{}) rotate(-90)\" "
                 "text-anchor=\"middle\">µs per row (log scale)</text>\n"
                 "<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">operators in "
                 "execution order; the slowest are named</text>\n",
                 kTop + kHeight / 2, kLeft + kWidth / 2, kTop + kHeight + kBelow - 12);
  for (const NodeRange& stage : stages) {
    const auto first = std::lower_bound(run.begin(), run.end(), stage.first) - run.begin();
    const double at = kLeft + step * (static_cast<double>(first) - (first > 0 ? 0.5 : 0));
    fmt::format_to(out,
                   "<path class=\"axis\" d=\"M{:.1f},{} v{}\" stroke-dasharray=\"4 3\"/>"
                   "<text class=\"note small\" x=\"{:.1f}\" y=\"{}\">{}</text>\n",
                   at, kTop, kHeight, at + 3, kTop - 4, SvgText(stage.name));
  }
  size_t colour = 0;
  for (const int size : SizesTimed(costs)) {
    const size_t shade = std::min(colour, kColours - 1);
    fmt::format_to(out, "<g class=\"q{}\">", shade);
    for (size_t i = 0; i < run.size(); ++i) {
      const auto cost = costs[run[i]].find(size);
      if (cost == costs[run[i]].end()) continue;
      const Node& node = graph.nodes[run[i]];
      fmt::format_to(out,
                     "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{} {}, {} rows: {:.4g} µs "
                     "per row</title></circle>",
                     x(i), y(UsPerRow(*cost)), node.def->name, SvgText(node.name), size,
                     UsPerRow(*cost));
    }
    const double at = kLeft + 96 * static_cast<double>(colour);
    fmt::format_to(out,
                   "<circle cx=\"{:.1f}\" cy=\"70\" r=\"4\"/></g>"
                   "<text class=\"note\" x=\"{:.1f}\" y=\"74\">batch {}</text>\n",
                   at, at + 9, size);
    ++colour;
  }
  std::vector<size_t> slowest(run.size());
  std::iota(slowest.begin(), slowest.end(), size_t{0});
  std::stable_sort(slowest.begin(), slowest.end(), [&](size_t a, size_t b) {
    return UsOfOne(costs[run[a]]) > UsOfOne(costs[run[b]]);
  });
  std::vector<double> named;
  for (const size_t i : slowest) {
    const bool free = std::all_of(named.begin(), named.end(),
                                  [&](double other) { return std::abs(other - x(i)) > 16; });
    if (!free) continue;
    named.push_back(x(i));
    fmt::format_to(out,
                   "<text class=\"note small\" transform=\"translate({:.1f},{}) rotate(-40)\" "
                   "text-anchor=\"end\">{}</text>\n",
                   x(i) + 4, kTop + kHeight + 16, graph.nodes[run[i]].def->name);
    if (named.size() == kNamed) break;
  }
  return svg + "</svg>\n";
}

}  // namespace chairlift
