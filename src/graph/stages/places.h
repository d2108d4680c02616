// Finds the places where a graph may be cut, and selects among them.
#ifndef CHAIRLIFT_GRAPH_STAGES_PLACES_H_
#define CHAIRLIFT_GRAPH_STAGES_PLACES_H_

#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/stages/stages.h"

namespace chairlift {

// For each value: the last node that reads it; −1 if none does.
std::vector<int> LastReaders(const Graph& graph);

// A place between two nodes.
struct CutPlace {
  int node = 0;                 // the first node after it
  double bytes = 0;             // bytes of one row that cross it; varying dimensions count as 1
  ValueId obstacle = kNoValue;  // a crossing value that is not rows, which prevents a cut here
};

// All places, in order: before node 1 to before the last. `packed`: as in StageCuts.
std::vector<CutPlace> CutPlaces(const Graph& graph, const std::set<std::string>& rows, bool packed);

struct ChosenCuts {
  std::vector<int> nodes;  // the first nodes of all stages but the first, ascending
  std::vector<int> exits;  // indices into these, by StageCuts::exits and `skips`
  std::vector<int> skips;
};

// Errors as for CutIntoStages(). In `graph`, what exits depend on comes first (OrderForExits).
StatusOr<ChosenCuts> ChooseCuts(const Graph& graph, const std::set<std::string>& rows,
                                std::span<const double> costs, const StageCuts& cuts);

// An order of the nodes in which those that the first of these outputs depends on come first, then
// those of the second, and so on; each group in the order of the graph. InvalidArgument if one is
// not an output.
StatusOr<std::vector<int>> OrderForExits(const Graph& graph, std::span<const std::string> exits);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_STAGES_PLACES_H_
