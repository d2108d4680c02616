// Renames a graph's inputs and outputs.
#ifndef CHAIRLIFT_GRAPH_RENAME_PORTS_H_
#define CHAIRLIFT_GRAPH_RENAME_PORTS_H_

#include <map>
#include <string>

#include "graph/ir.h"

namespace chairlift {

// `names`: maps names in the file to new names of its inputs and outputs. "{i}", once in both names
// of a pair, matches any number: {"k_{i}", "past_key_values.{i}.key"}. InvalidArgument names a pair
// that matches no input or output, and a name that would occur twice.
Status RenamePorts(Graph& graph, const std::map<std::string, std::string>& names);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_RENAME_PORTS_H_
