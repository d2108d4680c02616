// What `inspect --passes` shows: what each pass did, what runs fused, and what does not, and why.
#ifndef CHAIRLIFT_CLI_PASSES_VIEW_H_
#define CHAIRLIFT_CLI_PASSES_VIEW_H_

#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"
#include "graph/passes/pass.h"

namespace chairlift {

// A graph's passes that ran in two goes as one list: rewrites and times added up, what both left
// named once.
std::vector<PassReport> Joined(std::span<const PassReport> first, std::span<const PassReport> then);

std::string PassesTable(std::span<const PassReport> reports);

// What the operators of a graph stand for that has been through the passes; empty where none is
// fused.
std::string FusedTable(const Graph& graph);

// "fuse_attention: node 'a' (Softmax) and 11 others: ...": what looked alike was left, a line for
// each pass and reason.
std::vector<std::string> LeftApart(std::span<const PassReport> reports);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_PASSES_VIEW_H_
