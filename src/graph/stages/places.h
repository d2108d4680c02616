// The places where a graph may be cut, and which of them are taken.
#ifndef CHAIRLIFT_GRAPH_STAGES_PLACES_H_
#define CHAIRLIFT_GRAPH_STAGES_PLACES_H_

#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/stages/stages.h"

namespace chairlift {

// For each value, the last node that reads it: −1 if none does.
std::vector<int> LastReaders(const Graph& graph);

// Between two nodes.
struct CutPlace {
  int node = 0;                 // the first one behind it
  double bytes = 0;             // of one row, that cross; dimensions that vary count as 1
  ValueId obstacle = kNoValue;  // crosses and is not rows: there can be no cut
};

// All, in order: before node 1 to before the last. `packed`: as StageCuts has it.
std::vector<CutPlace> CutPlaces(const Graph& graph, const std::set<std::string>& rows, bool packed);

struct ChosenCuts {
  std::vector<int> nodes;  // the first ones of all stages but the first, ascending
  std::vector<int> exits;  // of these, by StageCuts::exits and `skips`
  std::vector<int> skips;
};

// Errors as CutIntoStages(). `graph` has what exits need before all else (OrderForExits).
StatusOr<ChosenCuts> ChooseCuts(const Graph& graph, const std::set<std::string>& rows,
                                std::span<const double> costs, const StageCuts& cuts);

// The nodes in an order in which what the first of these outputs needs comes first, then what the
// second needs, and so on; each as the graph has it. InvalidArgument where one is no output.
StatusOr<std::vector<int>> OrderForExits(const Graph& graph, std::span<const std::string> exits);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_STAGES_PLACES_H_
