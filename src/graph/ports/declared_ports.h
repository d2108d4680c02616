// Inputs and outputs as a configuration declares them: checked against the file's, and, where
// clients are to use other shapes, added to the graph.
#ifndef CHAIRLIFT_GRAPH_PORTS_DECLARED_PORTS_H_
#define CHAIRLIFT_GRAPH_PORTS_DECLARED_PORTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

struct DeclaredPort {
  std::string name = {};
  DType dtype = DType::kUndefined;  // kUndefined: not declared
  // As clients bring or get it, without the batch; -1: any size. Absent: not declared.
  std::optional<std::vector<int64_t>> dims = {};
  // As the file has it, where that is another shape of as many elements.
  std::optional<std::vector<int64_t>> reshape = {};
  // An input that the file takes as a list of all elements, [elements].
  bool ragged = false;
};

// An input of the file that clients do not send: it follows from the size of another, as clients
// bring that. Each request is a batch of its own.
struct ComputedInput {
  enum class Kind {
    kElements,          // [1]: the number of elements
    kElementsFromZero,  // [2]: 0, and that
    kElementsAsShape,   // [elements], the values mean nothing
    kItemShapes,        // [rows, rank]: for each row its shape
    kItemShapesInOne,   // [rows · rank]
  };
  Kind kind = Kind::kElements;
  std::string name = {};
  std::string source = {};
  DType dtype = DType::kUndefined;
};

// An output that gets the shape of an input, as clients bring that.
struct ShapedOutput {
  std::string name = {};
  std::string source = {};
};

struct DeclaredPorts {
  bool batch = false;  // dimension 0 of all inputs and outputs is the batch
  std::vector<DeclaredPort> inputs = {};
  std::vector<DeclaredPort> outputs = {};
  std::vector<ComputedInput> computed = {};
  std::vector<ShapedOutput> shaped = {};

  // Whether it asks for other inputs or outputs than the file has.
  bool Rewrites() const;
};

// Has the graph take and give what is declared. The graph must have passed InferShapes().
// InvalidArgument names the input or output that contradicts the file, Unimplemented what cannot be
// done.
Status DeclarePorts(const DeclaredPorts& ports, Graph& graph);

// The same of one input or output of anything else than a graph: checks `shape`, and fills in what
// it leaves open. `what` is "input" or "output". The batch is left as it is.
Status DeclareShape(const DeclaredPort& port, bool batch, const char* what, SymbolicShape& shape);

// That clients' `dims` and the file's `reshape` have as many elements: as many open dimensions in
// both, and equal products between them.
Status CheckReshape(const DeclaredPort& port, const char* what);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PORTS_DECLARED_PORTS_H_
