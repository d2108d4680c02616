// A graph made for what is known of its inputs and sizes, once and for all.
#ifndef CHAIRLIFT_GRAPH_SPECIALISE_H_
#define CHAIRLIFT_GRAPH_SPECIALISE_H_

#include <map>
#include <string>

#include "graph/ir.h"

namespace chairlift {

// As InferShapes(), but an If may have a branch that does not fit the graph where its condition
// follows from constants and declared sizes and selects the other one. What such conditions follow
// from is then computed, and each If of known condition becomes the branch that it takes.
Status InferTakenBranches(Graph& graph);

// Inputs named in `inputs` become constants, dimensions of inputs named in `dims` numbers. What
// follows from them is computed and branches that are not taken go, so that an exporter's checks of
// shapes do not stand in the way of batching. NotFound names an input or a dimension that the graph
// does not have, InvalidArgument a value that does not fit.
Status Specialise(Graph& graph, const std::map<std::string, Tensor>& inputs,
                  const std::map<std::string, int64_t>& dims);

// Likewise, with whole shapes for the inputs in `shapes`; dimensions in them may share symbols that
// they did not share before. What was known of other values is inferred again.
Status SpecialiseShapes(Graph& graph, const std::map<std::string, Tensor>& inputs,
                        const std::map<std::string, SymbolicShape>& shapes);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_SPECIALISE_H_
