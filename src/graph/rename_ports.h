// Other names for a graph's inputs and outputs.
#ifndef CHAIRLIFT_GRAPH_RENAME_PORTS_H_
#define CHAIRLIFT_GRAPH_RENAME_PORTS_H_

#include <map>
#include <string>

#include "graph/ir.h"

namespace chairlift {

// `names`: from those of the file to those that its inputs and outputs get. "{i}", once in both
// names of a pair, stands for any number: {"k_{i}", "past_key_values.{i}.key"}. InvalidArgument
// names a pair that fits no input or output, and a name that would be there twice.
Status RenamePorts(Graph& graph, const std::map<std::string, std::string>& names);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_RENAME_PORTS_H_
