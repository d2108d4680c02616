#include "graph/stages/places.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/closest.h"
#include "base/status.h"
#include "graph/ragged/ragged.h"

namespace chairlift {
namespace {

// Resolution of places by cost: of places that are closer, the one that the fewest bytes cross
// represents all.
constexpr int kSteps = 512;
// The penalty of a place that the most bytes cross: equal to that of a stage whose cost is off by a
// third.
constexpr double kBytesWeight = 0.1;
// The penalty if operators of one stage prefer different batch sizes, per relative extra cost of
// the best common size: 4% counts as much as a stage of twice its share.
constexpr double kSizesWeight = 25;

bool IsReorder(const Node& node) {
  return node.def->domain == "chairlift" && node.def->name == "Reorder";
}

// By value: whether it is rows in this graph too.
std::vector<bool> RowsOf(const Graph& graph, const std::set<std::string>& rows) {
  std::vector<bool> found(graph.values.size(), false);
  if (graph.inputs.empty() || !graph.values[graph.inputs[0]].shape.has_rank() ||
      graph.values[graph.inputs[0]].shape.rank() == 0) {
    return found;
  }
  const Dim batch = graph.values[graph.inputs[0]].shape[0];
  if (!batch.is_symbol()) return found;
  const auto leads = [&](const Value& value) {
    return value.shape.has_rank() && value.shape.rank() > 0 && value.shape[0].is_symbol() &&
           value.shape[0].symbol() == batch.symbol();
  };
  for (size_t id = 0; id < found.size(); ++id) {
    const Value& value = graph.values[id];
    found[id] = !value.is_constant() && leads(value) && rows.contains(value.name);
  }
  for (const Node& node : graph.nodes) {
    if (IsReorder(node)) found[node.outputs[0]] = found[node.inputs[0]];
  }
  return found;
}

// The same for packed tokens.
std::vector<bool> PackedRows(const Graph& graph) {
  std::vector<bool> found;
  for (const Value& value : graph.values) {
    found.push_back(!value.is_constant() && PackedUnitOf(value.shape) != PackedUnit::kNone);
  }
  return found;
}

double BytesOfRow(const Value& value) {
  auto bytes = static_cast<double>(DTypeSize(value.dtype));
  if (!value.shape.has_rank()) return bytes;
  for (int axis = 1; axis < value.shape.rank(); ++axis) {
    if (value.shape[axis].known()) bytes *= static_cast<double>(value.shape[axis].value());
  }
  return bytes;
}

// A possible cut, and the costs before it as a share of all.
struct Candidate {
  int node = 0;
  double before = 0;
  double bytes = 0;
  bool needed = false;  // a cut is required here
};

std::vector<Candidate> Candidates(std::span<const CutPlace> places, std::span<const double> costs,
                                  const std::set<int>& needed) {
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<Candidate> candidates;
  double before = 0;
  for (const CutPlace& place : places) {
    before += costs[static_cast<size_t>(place.node) - 1];
    if (place.obstacle != kNoValue) continue;
    const Candidate own{place.node, all > 0 ? before / all : 0, place.bytes,
                        needed.contains(place.node)};
    const bool apart =
        candidates.empty() || places.size() <= kSteps || own.needed || candidates.back().needed ||
        static_cast<int>(candidates.back().before * kSteps) < static_cast<int>(own.before * kSteps);
    if (apart) {
      candidates.push_back(own);
    } else if (own.bytes < candidates.back().bytes) {
      candidates.back() = own;
    }
  }
  return candidates;
}

// The extra cost of a stage of these nodes, as a share of all costs, if it runs at the best size
// for the whole stage instead of each node at its own best size.
class SizeRegret {
 public:
  SizeRegret(std::span<const std::vector<double>> row_costs, size_t nodes)
      : best_(nodes + 1, 0), by_size_(row_costs.size(), std::vector<double>(nodes + 1, 0)) {
    for (size_t n = 0; n < nodes && !row_costs.empty(); ++n) {
      double best = row_costs[0][n];
      for (size_t size = 0; size < row_costs.size(); ++size) {
        best = std::min(best, row_costs[size][n]);
        by_size_[size][n + 1] = by_size_[size][n] + row_costs[size][n];
      }
      best_[n + 1] = best_[n] + best;
    }
  }
  double Of(int first, int end) const {
    const auto from = static_cast<size_t>(first), to = static_cast<size_t>(end);
    if (by_size_.empty() || best_.back() <= 0) return 0;
    double common = std::numeric_limits<double>::infinity();
    for (const auto& sums : by_size_) common = std::min(common, sums[to] - sums[from]);
    return (common - (best_[to] - best_[from])) / best_.back();
  }

 private:
  // Prefix sums over the nodes.
  std::vector<double> best_;
  std::vector<std::vector<double>> by_size_;
};

// Minimises the sum of the penalties of stages and places. There are at least as many stages as
// required cuts create.
std::vector<int> MostEven(std::span<const Candidate> candidates, int stages, int nodes,
                          const SizeRegret& regret) {
  double most = 0;
  for (const Candidate& candidate : candidates) most = std::max(most, candidate.bytes);
  const size_t count = candidates.size();
  std::vector<int> needed_before(count + 1, 0);
  for (size_t at = 0; at < count; ++at) {
    needed_before[at + 1] = needed_before[at] + (candidates[at].needed ? 1 : 0);
  }
  constexpr double kNone = std::numeric_limits<double>::infinity();
  // The penalty of a stage from one candidate to another; −1: the model's start; `count`: its end.
  const auto against = [&](std::ptrdiff_t from, size_t to) {
    const auto next = static_cast<size_t>(from + 1);
    if (needed_before[to] > needed_before[next]) return kNone;
    const double begins = from < 0 ? 0 : candidates[static_cast<size_t>(from)].before;
    const double ends = to == count ? 1 : candidates[to].before;
    const double off = (ends - begins) * stages - 1;
    return off * off +
           kSizesWeight * regret.Of(from < 0 ? 0 : candidates[static_cast<size_t>(from)].node,
                                    to == count ? nodes : candidates[to].node);
  };
  // By place: the minimum over all ways to have the k-th cut there, and the cut before.
  std::vector<double> least(count);
  std::vector<std::vector<int>> previous(static_cast<size_t>(stages) - 1, std::vector<int>(count));
  for (int cut = 0; cut + 1 < stages; ++cut) {
    std::vector<double> next(count, kNone);
    for (size_t at = 0; at < count; ++at) {
      const double own = most > 0 ? kBytesWeight * candidates[at].bytes / most : 0;
      if (cut == 0) {
        next[at] = against(-1, at) + own;
        continue;
      }
      for (size_t from = 0; from < at; ++from) {
        if (least[from] == kNone) continue;
        const double sum = least[from] + against(static_cast<std::ptrdiff_t>(from), at) + own;
        if (sum >= next[at]) continue;
        next[at] = sum;
        previous[static_cast<size_t>(cut)][at] = static_cast<int>(from);
      }
    }
    least = std::move(next);
  }
  size_t best = 0;
  double best_sum = kNone;
  for (size_t at = 0; at < count; ++at) {
    const double sum = least[at] + against(static_cast<std::ptrdiff_t>(at), count);
    if (sum < best_sum) {
      best = at;
      best_sum = sum;
    }
  }
  std::vector<int> chosen;
  for (int cut = stages - 2; cut >= 0; --cut) {
    chosen.push_back(candidates[best].node);
    best = static_cast<size_t>(previous[static_cast<size_t>(cut)][best]);
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

// The place in `places` before this node. `where`: the setting that wants a cut after `name`.
Status CheckCut(const Graph& graph, std::span<const CutPlace> places, int node, const char* where,
                const std::string& name) {
  if (node == static_cast<int>(graph.nodes.size())) {
    return InvalidArgument("{}: '{}' needs all of the model, and nothing follows it", where, name);
  }
  const ValueId obstacle = places[static_cast<size_t>(node) - 1].obstacle;
  if (obstacle == kNoValue) return absl::OkStatus();
  return InvalidArgument(
      "{}: no cut is possible after '{}': '{}' of shape {} is needed after it, and does not have "
      "one row for each row of the batch along dimension 0",
      where, name, graph.values[obstacle].name, graph.values[obstacle].shape.ToString());
}

// The node after the one that has this name, or after the one that computes the value of this name.
// `where`: the setting that wants a cut after it.
StatusOr<int> NodeBehind(const Graph& graph, const StageCuts& cuts, const char* where,
                         const std::string& name) {
  std::vector<std::string> known;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    bool named = node.name == name;
    known.push_back(node.name);
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      named = named || graph.values[id].name == name;
      known.push_back(graph.values[id].name);
    }
    if (!named) continue;
    if (n + 1 == graph.nodes.size()) {
      return InvalidArgument("{}: '{}' is the last of the model, and nothing follows it", where,
                             name);
    }
    return static_cast<int>(n) + 1;
  }
  for (const ValueId id : graph.inputs) {
    if (graph.values[id].name != name) continue;
    return InvalidArgument(
        "{}: '{}' is an input of the model; name a node, or a tensor that one computes", where,
        name);
  }
  if (cuts.before_passes.contains(name)) {
    return InvalidArgument(
        "{}: '{}' is computed within a fused operator, which no cut may divide; 'chairlift "
        "inspect --passes' shows what is left to cut after{}",
        where, name, DidYouMean(name, known));
  }
  return InvalidArgument("{}: there is no node or tensor '{}'{}", where, name,
                         DidYouMean(name, known));
}

StatusOr<std::vector<int>> NamedCuts(const Graph& graph, const StageCuts& cuts,
                                     std::span<const CutPlace> places,
                                     const std::vector<std::string>& after, const char* where) {
  std::vector<int> nodes;
  for (const std::string& name : after) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int node, NodeBehind(graph, cuts, where, name));
    CHAIRLIFT_RETURN_IF_ERROR(CheckCut(graph, places, node, where, name));
    nodes.push_back(node);
  }
  return nodes;
}

Status CheckDifferent(std::span<const int> nodes, const std::vector<std::string>& names) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (nodes[earlier] != nodes[i]) continue;
      return InvalidArgument("stages: '{}' and '{}' name the same place; name it once",
                             names[earlier], names[i]);
    }
  }
  return absl::OkStatus();
}

// The nodes that a value depends on.
std::vector<bool> NodesFor(const Graph& graph, ValueId value) {
  std::vector<bool> wanted(graph.values.size(), false), nodes(graph.nodes.size(), false);
  wanted[value] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    nodes[n] = std::any_of(node.outputs.begin(), node.outputs.end(),
                           [&](ValueId id) { return id != kNoValue && wanted[id]; });
    if (!nodes[n]) continue;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) wanted[id] = true;
    }
  }
  return nodes;
}

StatusOr<ValueId> OutputNamed(const Graph& graph, const std::string& name) {
  std::vector<std::string> known;
  for (const ValueId id : graph.outputs) {
    if (graph.values[id].name == name) return id;
    known.push_back(graph.values[id].name);
  }
  return InvalidArgument("exits: '{}' is not an output of the model{}", name,
                         KnownNames(name, known));
}

// The first node after everything that each exit depends on.
StatusOr<std::vector<int>> ExitCuts(const Graph& graph, std::span<const CutPlace> places,
                                    const std::vector<std::string>& exits) {
  std::vector<int> nodes;
  std::vector<bool> before(graph.nodes.size(), false);
  for (const std::string& name : exits) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId output, OutputNamed(graph, name));
    const std::vector<bool> own = NodesFor(graph, output);
    for (size_t n = 0; n < own.size(); ++n) before[n] = before[n] || own[n];
    const auto end = static_cast<int>(std::count(before.begin(), before.end(), true));
    if (end == 0) return InvalidArgument("exits: '{}' is an input or a constant", name);
    if (!nodes.empty() && end == nodes.back()) {
      return InvalidArgument(
          "exits: '{}' needs nothing beyond what the exits before it need; list the earliest exit "
          "first",
          name);
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckCut(graph, places, end, "exits", name));
    nodes.push_back(end);
  }
  return nodes;
}

}  // namespace

std::vector<int> LastReaders(const Graph& graph) {
  std::vector<int> last(graph.values.size(), -1);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId id : graph.nodes[n].inputs) {
      if (id != kNoValue) last[id] = static_cast<int>(n);
    }
  }
  return last;
}

PackedUnit PackedUnitOf(const SymbolicShape& shape) {
  PackedUnit unit = PackedUnit::kNone;
  if (!shape.has_rank()) return unit;
  for (const Dim& dim : shape.dims()) {
    if (unit != PackedUnit::kNone) {
      if (!dim.known()) return PackedUnit::kNone;
    } else if (dim.Same(Dim::Symbol(kTokensSymbol))) {
      unit = PackedUnit::kToken;
    } else if (dim.Same(Dim::Symbol(kSequencesSymbol))) {
      unit = PackedUnit::kSequence;
    } else if (!dim.known() || dim.value() != 1) {
      return PackedUnit::kNone;
    }
  }
  return unit;
}

std::vector<CutPlace> CutPlaces(const Graph& graph, const std::set<std::string>& rows,
                                bool packed) {
  const std::vector<bool> is_row = packed ? PackedRows(graph) : RowsOf(graph, rows);
  const std::vector<int> last = LastReaders(graph);
  std::vector<CutPlace> places;
  std::set<ValueId> live;
  if (!packed) live.insert(graph.inputs.begin(), graph.inputs.end());
  for (size_t n = 0; n + 1 < graph.nodes.size(); ++n) {
    for (const ValueId id : graph.nodes[n].outputs) {
      if (id != kNoValue) live.insert(id);
    }
    CutPlace place{.node = static_cast<int>(n) + 1};
    for (auto it = live.begin(); it != live.end();) {
      if (last[*it] <= static_cast<int>(n)) {
        it = live.erase(it);
        continue;
      }
      place.bytes += BytesOfRow(graph.values[*it]);
      if (!is_row[*it]) place.obstacle = *it;
      ++it;
    }
    places.push_back(place);
  }
  return places;
}

StatusOr<std::vector<int>> OrderForExits(const Graph& graph, std::span<const std::string> exits) {
  std::vector<int> order;
  std::vector<bool> taken(graph.nodes.size(), false);
  const auto take = [&](size_t n) {
    if (taken[n]) return;
    taken[n] = true;
    order.push_back(static_cast<int>(n));
  };
  for (const std::string& name : exits) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId output, OutputNamed(graph, name));
    const std::vector<bool> own = NodesFor(graph, output);
    for (size_t n = 0; n < own.size(); ++n) {
      if (own[n]) take(n);
    }
  }
  for (size_t n = 0; n < taken.size(); ++n) take(n);
  return order;
}

StatusOr<ChosenCuts> ChooseCuts(const Graph& graph, const std::set<std::string>& rows,
                                std::span<const double> costs, const StageCuts& cuts) {
  const std::vector<CutPlace> places = CutPlaces(graph, rows, cuts.packed);
  ChosenCuts chosen;
  CHAIRLIFT_ASSIGN_OR_RETURN(chosen.exits, ExitCuts(graph, places, cuts.exits));
  CHAIRLIFT_ASSIGN_OR_RETURN(chosen.skips,
                             NamedCuts(graph, cuts, places, cuts.skips, "exits: skip_to"));
  std::set<int> needed(chosen.exits.begin(), chosen.exits.end());
  needed.insert(chosen.skips.begin(), chosen.skips.end());
  if (!cuts.after.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> named,
                               NamedCuts(graph, cuts, places, cuts.after, "stages"));
    CHAIRLIFT_RETURN_IF_ERROR(CheckDifferent(named, cuts.after));
    needed.insert(named.begin(), named.end());
    chosen.nodes.assign(needed.begin(), needed.end());
    return chosen;
  }
  const std::vector<Candidate> candidates = Candidates(places, costs, needed);
  if (candidates.empty()) return Unimplemented("there is no place to cut it into stages");
  const int possible = static_cast<int>(candidates.size()) + 1;
  const int least = static_cast<int>(needed.size()) + 1;
  if (cuts.stages > possible) {
    return InvalidArgument("stages is {}, but the model has places for {} at most", cuts.stages,
                           possible);
  }
  if (cuts.stages > 0 && cuts.stages < least) {
    return InvalidArgument("stages is {}, but its exits make {} of the model at least", cuts.stages,
                           least);
  }
  const int stages =
      cuts.stages > 0 ? cuts.stages : std::max(least, std::min(kDefaultStages, possible));
  chosen.nodes = MostEven(candidates, stages, static_cast<int>(graph.nodes.size()),
                          SizeRegret(cuts.row_costs, graph.nodes.size()));
  return chosen;
}

}  // namespace chairlift
