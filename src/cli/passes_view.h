// What `inspect --passes` shows: the effect of each pass, what runs fused, and what does not, with
// reasons.
#ifndef CHAIRLIFT_CLI_PASSES_VIEW_H_
#define CHAIRLIFT_CLI_PASSES_VIEW_H_

#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"
#include "graph/passes/pass.h"

namespace chairlift {

// Joins the passes of two runs over a graph: rewrites and times are added, common notes are listed
// once.
std::vector<PassReport> Joined(std::span<const PassReport> first, std::span<const PassReport> then);

std::string PassesTable(std::span<const PassReport> reports);

// The operators behind the fused operators of a graph after the passes; empty if none is fused.
std::string FusedTable(const Graph& graph);

// "fuse_attention: node 'a' (Softmax) and 11 others: ...": similar nodes that were not fused, one
// line per pass and reason.
std::vector<std::string> LeftApart(std::span<const PassReport> reports);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_PASSES_VIEW_H_
