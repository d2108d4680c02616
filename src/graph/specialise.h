// Specialises a graph permanently for known inputs and sizes.
#ifndef CHAIRLIFT_GRAPH_SPECIALISE_H_
#define CHAIRLIFT_GRAPH_SPECIALISE_H_

#include <map>
#include <string>

#include "graph/ir.h"

namespace chairlift {

// Like InferShapes(), but an If may have a branch that does not fit the graph if its condition
// depends only on constants and declared sizes and selects the other branch. Such conditions are
// then computed, and each If with a known condition is replaced by the branch that it takes.
Status InferTakenBranches(Graph& graph);

// Inputs in `inputs` become constants, and dimensions of inputs in `dims` become numbers. What
// depends on them is computed and branches that are not taken are removed, so that an exporter's
// checks of shapes do not prevent batching. NotFound names an input or a dimension that the graph
// does not have, InvalidArgument a value that does not fit.
Status Specialise(Graph& graph, const std::map<std::string, Tensor>& inputs,
                  const std::map<std::string, int64_t>& dims);

// The same with whole shapes for the inputs in `shapes`; their dimensions may share symbols that
// they did not share before. Information about other values is inferred again.
Status SpecialiseShapes(Graph& graph, const std::map<std::string, Tensor>& inputs,
                        const std::map<std::string, SymbolicShape>& shapes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_SPECIALISE_H_
