// Rewrites of the graph: named, switchable, timed, and verified afterwards.
#ifndef CHAIRLIFT_GRAPH_PASSES_PASS_H_
#define CHAIRLIFT_GRAPH_PASSES_PASS_H_

#include <chrono>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

struct Pass {
  const char* name;     // "fuse_conv_activation"
  const char* summary;  // one line for `inspect --passes`
  // Returns the number of rewrites. `notes` receives the reasons why similar nodes were not
  // rewritten.
  StatusOr<int> (*run)(Graph& graph, std::vector<std::string>& notes);
};

// In the order in which they run. Each is a file in this folder.
std::span<const Pass> AllPasses();

// InvalidArgument if one of `names` is not the name of a pass.
Status CheckPassNames(const std::set<std::string>& names);

struct PassReport {
  std::string name;
  int rewrites = 0;
  std::chrono::microseconds time{0};
  std::vector<std::string> notes;
  bool skipped = false;
};

// Runs all passes except those in `disabled`, with the verifier after each, and infers shapes
// again.
StatusOr<std::vector<PassReport>> RunPasses(Graph& graph, const std::set<std::string>& disabled);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_PASS_H_
