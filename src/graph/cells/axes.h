// Along which axes the lanes and the tokens of a model's values lie.
//
// The proof that rows stay apart (graph/batch_axis) is made for the batch, whose rows are lanes,
// and then, with rules of its own for recurrent layers, for each sequence, whose rows are time
// steps. Where both hold, a value's entry follows from one token alone.
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
  // By node: it looks at several time steps, or it is where the sequence begins.
  std::vector<bool> mixes;
  ValueId source = kNoValue;  // a value that has the sequence from the start
};

struct ModelAxes {
  std::string batch_symbol;
  std::vector<batch_axis::State> batch;  // by value
  // By value: it follows from the contents of inputs, not from sizes and constants alone.
  std::vector<bool> real;
  std::vector<SequenceAxes> sequences;
  // By node: empty of a recurrent layer and of a Scan that can be cut into its steps; of others,
  // why they cannot.
  std::vector<std::string> no_layer;
  // By node: of such a layer, the sequence it runs along; otherwise −1.
  std::vector<int> layer_sequence;
};

// Of a lowered graph. Unimplemented, with the reason in words, where lanes do not stay apart or no
// recurrence can be cut into steps.
StatusOr<ModelAxes> FindAxes(const Graph& graph);

// How lanes and (where `sequence` is given and the value runs along it) tokens lie in the value's
// axes; nothing where that is not known well enough. The value must be of rows along the batch.
std::optional<Form> FormOf(const Graph& graph, const ModelAxes& axes, const SequenceAxes* sequence,
                           ValueId id);
}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_AXES_H_
