// The axes of lanes and tokens in a model's values.
//
// The proof that rows are independent (graph/batch_axis) is made for the batch, whose rows are
// lanes. Then it is made for each sequence, whose rows are time steps, with special rules for
// recurrent layers. If both hold, an entry of a value depends on one token alone.
#ifndef CHAIRLIFT_GRAPH_CELLS_AXES_H_
#define CHAIRLIFT_GRAPH_CELLS_AXES_H_

#include <optional>
#include <string>
#include <vector>

#include "graph/batch_axis/rule.h"
#include "graph/cells/form.h"
#include "graph/ir.h"

namespace chairlift {

// A sequence that some recurrent layer runs along.
struct SequenceAxes {
  std::string symbol;                     // of its length
  std::vector<batch_axis::State> states;  // by value: rows are time steps
  // By node: it reads several time steps, or the sequence starts here.
  std::vector<bool> mixes;
  ValueId source = kNoValue;  // a value that has the sequence from the start
};

struct ModelAxes {
  std::string batch_symbol;
  std::vector<batch_axis::State> batch;  // by value
  // By value: it depends on the contents of inputs, not only on sizes and constants.
  std::vector<bool> real;
  std::vector<SequenceAxes> sequences;
  // By node: empty for a recurrent layer and for a Scan that can be cut into steps; for others, the
  // reason why not.
  std::vector<std::string> no_layer;
  // By node: the sequence that such a layer runs along; otherwise −1.
  std::vector<int> layer_sequence;
};

// For a lowered graph. Unimplemented, with the reason, if lanes are not independent or no
// recurrence can be cut into steps.
StatusOr<ModelAxes> FindAxes(const Graph& graph);

// The position of lanes in the value's axes, and of tokens if `sequence` is given and the value
// runs along it. Nothing if not enough is known. The value must be rows along the batch.
std::optional<Form> FormOf(const Graph& graph, const ModelAxes& axes, const SequenceAxes* sequence,
                           ValueId id);
}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_AXES_H_
