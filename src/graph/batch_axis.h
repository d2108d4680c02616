// Whether requests to a model may share a batch: a proof, operator by operator, that each row of
// every output depends on the same row of every input and on nothing else.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_H_

#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// The proof holds for batches of up to so many rows: a slice that ends later takes them all.
inline constexpr int64_t kMaxBatchRows = int64_t{1} << 24;

struct BatchAxisReport {
  bool batches = false;
  std::string why;  // in words, either way
  // The inputs are known to share dimension 0: if batches is false, some operator mixes rows.
  bool inputs_share = false;
};

// The batch is dimension 0 of every input and output. An operator that is not known to keep rows
// apart counts as one that mixes them. The graph must have passed InferShapes(), and must not have
// been through the passes, whose operators are not known here.
BatchAxisReport AnalyseBatchAxis(const Graph& graph);

// Likewise, for rows along any dimension: `axes[i]` of input i, which is the symbol `symbol` there
// and nowhere else. Returns each output's batch dimension; Unimplemented says why there is none.
StatusOr<std::vector<int>> AnalyseRows(const Graph& graph, const std::string& symbol,
                                       std::span<const int> axes);

// By value, whether it is rows along dimension 0: its row r follows from row r of the inputs and
// from nothing else that varies. None where AnalyseBatchAxis() finds that requests may not share a
// batch.
std::vector<bool> FindRows(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_H_
