// The rule for RotaryEmbedding: gathers the table entries for the positions first.
#include "graph/onnx/normalise_rules.h"

namespace chairlift::normalise {

Status RotaryPositions(OnnxNode& node, Rewriter& rewriter) {
  if (node.inputs.size() < 4 || node.inputs[3] == kNoValue) return absl::OkStatus();
  const ValueId positions = node.inputs[3];
  for (const size_t table : {1, 2}) {
    if (node.inputs[table] == kNoValue) return InvalidArgument("it takes 2 tables");
    const SymbolicShape shape = rewriter.info(node.inputs[table]).shape;
    if (shape.has_rank() && shape.rank() != 2) {
      return InvalidArgument("input {} has rank {}, not 2 as position_ids need it", table,
                             shape.rank());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(node.inputs[table], rewriter.Add("Gather", kNewestOpset, {},
                                                                {node.inputs[table], positions}));
  }
  node.inputs.resize(3);
  return absl::OkStatus();
}

}  // namespace chairlift::normalise
