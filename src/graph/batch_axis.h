// Whether requests to a model may share a batch: a proof, operator by operator, that each row of
// every output depends on the same row of every input and on nothing else.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_H_

#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

// The proof holds for batches of up to this many rows: a slice whose end is beyond them takes all
// rows.
inline constexpr int64_t kMaxBatchRows = int64_t{1} << 24;

struct BatchAxisReport {
  bool batches = false;
  std::string why;  // the reason, for either result
  // The inputs certainly share dimension 0: then `batches` is false because some operator mixes
  // rows.
  bool inputs_share = false;
};

// Analyses the batch as dimension 0 of every input and output. An operator that is not known to
// keep rows apart counts as one that mixes them. The graph must have passed InferShapes(), and must
// not have been through the passes, whose operators are unknown here.
BatchAxisReport AnalyseBatchAxis(const Graph& graph);

// The same for rows along any dimension: `axes[i]` of input i. There the dimension must be the
// symbol `symbol`, and nowhere else. Returns each output's batch dimension; Unimplemented if there
// is none, with the reason.
StatusOr<std::vector<int>> AnalyseRows(const Graph& graph, const std::string& symbol,
                                       std::span<const int> axes);

// By value: whether it is rows along dimension 0, so that its row r depends on row r of the inputs
// and on nothing else that varies. All false if AnalyseBatchAxis() finds that requests may not
// share a batch.
std::vector<bool> FindRows(const Graph& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_H_
