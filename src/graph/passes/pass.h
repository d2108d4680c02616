// Rewrites of the graph: named, switchable, timed, verified after.
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
  // Returns how many rewrites it made. `notes` takes why something that looked alike was left.
  StatusOr<int> (*run)(Graph& graph, std::vector<std::string>& notes);
};

// In the order they run. One file each in this folder.
std::span<const Pass> AllPasses();

// InvalidArgument where one of `names` is not a pass's.
Status CheckPassNames(const std::set<std::string>& names);

struct PassReport {
  std::string name;
  int rewrites = 0;
  std::chrono::microseconds time{0};
  std::vector<std::string> notes;
  bool skipped = false;
};

// Runs all passes but those named in `disabled`, the verifier after each, and infers shapes again.
StatusOr<std::vector<PassReport>> RunPasses(Graph& graph, const std::set<std::string>& disabled);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PASSES_PASS_H_
