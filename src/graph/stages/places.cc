#include "graph/stages/places.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/closest.h"
#include "base/status.h"

namespace chairlift {
namespace {

// Places that are told apart by cost: of those that are closer, the one where least crosses stands
// for all.
constexpr int kSteps = 512;
// How much it counts against a place that as much crosses it as crosses any: as much as a stage
// that is off by a third.
constexpr double kBytesWeight = 0.1;

bool IsReorder(const Node& node) {
  return node.def->domain == "chairlift" && node.def->name == "Reorder";
}

// By value, whether it is rows in this graph, too.
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

double BytesOfRow(const Value& value) {
  auto bytes = static_cast<double>(DTypeSize(value.dtype));
  for (int axis = 1; axis < value.shape.rank(); ++axis) {
    if (value.shape[axis].known()) bytes *= static_cast<double>(value.shape[axis].value());
  }
  return bytes;
}

// A place that may be cut at, and the costs before it, as a share of all.
struct Candidate {
  int node = 0;
  double before = 0;
  double bytes = 0;
};

std::vector<Candidate> Candidates(std::span<const CutPlace> places, std::span<const double> costs) {
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<Candidate> candidates;
  double before = 0;
  for (const CutPlace& place : places) {
    before += costs[static_cast<size_t>(place.node) - 1];
    if (place.obstacle != kNoValue) continue;
    const Candidate own{place.node, all > 0 ? before / all : 0, place.bytes};
    const bool apart =
        candidates.empty() || places.size() <= kSteps ||
        static_cast<int>(candidates.back().before * kSteps) < static_cast<int>(own.before * kSteps);
    if (apart) {
      candidates.push_back(own);
    } else if (own.bytes < candidates.back().bytes) {
      candidates.back() = own;
    }
  }
  return candidates;
}

// The least sum of what counts against stages and places.
std::vector<int> MostEven(std::span<const Candidate> candidates, int stages) {
  double most = 0;
  for (const Candidate& candidate : candidates) most = std::max(most, candidate.bytes);
  const auto uneven = [&](double from, double to) {
    const double off = (to - from) * stages - 1;
    return off * off;
  };
  const size_t count = candidates.size();
  // By place: the least of all ways to have the last of so many cuts there, and the cut before.
  std::vector<double> least(count);
  std::vector<std::vector<int>> previous(static_cast<size_t>(stages) - 1, std::vector<int>(count));
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (int cut = 0; cut + 1 < stages; ++cut) {
    std::vector<double> next(count, kNone);
    for (size_t at = 0; at < count; ++at) {
      const double own = most > 0 ? kBytesWeight * candidates[at].bytes / most : 0;
      if (cut == 0) {
        next[at] = uneven(0, candidates[at].before) + own;
        continue;
      }
      for (size_t from = 0; from < at; ++from) {
        const double sum =
            least[from] + uneven(candidates[from].before, candidates[at].before) + own;
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
    const double sum = least[at] + uneven(candidates[at].before, 1);
    if (sum < best_sum) {
      best = at;
      best_sum = sum;
    }
  }
  std::vector<int> nodes;
  for (int cut = stages - 2; cut >= 0; --cut) {
    nodes.push_back(candidates[best].node);
    best = static_cast<size_t>(previous[static_cast<size_t>(cut)][best]);
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

// The node behind the one that has this name, or gives the value that has.
StatusOr<int> NodeBehind(const Graph& graph, const std::set<std::string>& rows,
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
      return InvalidArgument("stages: '{}' is the last of the model, and nothing follows it", name);
    }
    return static_cast<int>(n) + 1;
  }
  if (rows.contains(name)) {
    return InvalidArgument(
        "stages: '{}' is computed within a fused operator, which no cut may divide; 'chairlift "
        "inspect --passes' shows what is left to cut after{}",
        name, DidYouMean(name, known));
  }
  return InvalidArgument("stages: there is no node or tensor '{}'{}", name,
                         DidYouMean(name, known));
}

StatusOr<std::vector<int>> NamedCuts(const Graph& graph, const std::set<std::string>& rows,
                                     std::span<const CutPlace> places,
                                     const std::vector<std::string>& after) {
  std::vector<std::pair<int, const std::string*>> cuts;
  for (const std::string& name : after) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int node, NodeBehind(graph, rows, name));
    const ValueId obstacle = places[static_cast<size_t>(node) - 1].obstacle;
    if (obstacle != kNoValue) {
      return InvalidArgument(
          "stages: no cut is possible after '{}': '{}' of shape {} is needed behind it, which is "
          "not one row for each of the batch along dimension 0",
          name, graph.values[obstacle].name, graph.values[obstacle].shape.ToString());
    }
    cuts.emplace_back(node, &name);
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<int> nodes;
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (i > 0 && cuts[i].first == cuts[i - 1].first) {
      return InvalidArgument("stages: '{}' and '{}' name the same place; name it once",
                             *cuts[i - 1].second, *cuts[i].second);
    }
    nodes.push_back(cuts[i].first);
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

std::vector<CutPlace> CutPlaces(const Graph& graph, const std::set<std::string>& rows) {
  const std::vector<bool> is_row = RowsOf(graph, rows);
  const std::vector<int> last = LastReaders(graph);
  std::vector<CutPlace> places;
  std::set<ValueId> live(graph.inputs.begin(), graph.inputs.end());
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

StatusOr<std::vector<int>> ChooseCuts(const Graph& graph, const std::set<std::string>& rows,
                                      std::span<const double> costs, const StageCuts& cuts) {
  const std::vector<CutPlace> places = CutPlaces(graph, rows);
  if (!cuts.after.empty()) return NamedCuts(graph, rows, places, cuts.after);
  const std::vector<Candidate> candidates = Candidates(places, costs);
  if (candidates.empty()) return Unimplemented("there is no place to cut it into stages");
  const int possible = static_cast<int>(candidates.size()) + 1;
  if (cuts.stages > possible) {
    return InvalidArgument("stages is {}, but the model has places for {} at most", cuts.stages,
                           possible);
  }
  return MostEven(candidates, cuts.stages > 0 ? cuts.stages : std::min(kDefaultStages, possible));
}

}  // namespace chairlift
