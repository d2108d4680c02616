// Inputs and outputs as declared in a configuration: checked against the file, and converted by
// added nodes if clients use other shapes.
#ifndef CHAIRLIFT_GRAPH_PORTS_DECLARED_PORTS_H_
#define CHAIRLIFT_GRAPH_PORTS_DECLARED_PORTS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

struct DeclaredPort {
  std::string name = {};
  DType dtype = DType::kUndefined;  // kUndefined: not declared
  // As clients send or receive it, without the batch; -1: any size. Absent: not declared.
  std::optional<std::vector<int64_t>> dims = {};
  // As in the file, if that is another shape with the same number of elements.
  std::optional<std::vector<int64_t>> reshape = {};
  // An input that the file has as a list of all elements, [elements].
  bool ragged = false;
};

// An input of the file that clients do not send: it is computed from the size of another input, as
// clients send that. Each request is a separate batch.
struct ComputedInput {
  enum class Kind {
    kElements,          // [1]: the number of elements
    kElementsFromZero,  // [2]: 0, then the number of elements
    kElementsAsShape,   // [elements], with arbitrary values
    kItemShapes,        // [rows, rank]: the shape of each row
    kItemShapesInOne,   // [rows · rank]: the same in one dimension
  };
  Kind kind = Kind::kElements;
  std::string name = {};
  std::string source = {};
  DType dtype = DType::kUndefined;
};

// An output that gets the shape of an input, as clients send that.
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
  // Whether `inputs` has all that clients send: an input of the file that is in none of these lists
  // is an error.
  bool all_inputs = false;
  std::set<std::string> filled = {};  // inputs that the server fills, besides those in `computed`
  // Whether `outputs` and `shaped` have all that clients get: other outputs are removed.
  bool all_outputs = false;

  // Whether it requires other inputs or outputs than the file has.
  bool Rewrites() const;
};

// Changes the graph's inputs and outputs to the declared ones. The graph must have passed
// InferShapes(). InvalidArgument names the input or output that contradicts the file, Unimplemented
// says what is not supported.
Status DeclarePorts(const DeclaredPorts& ports, Graph& graph);

// The same for one input or output of something other than a graph: checks `shape` and fills in its
// open dimensions. `what` is "input" or "output". The batch is unchanged.
Status DeclareShape(const DeclaredPort& port, bool batch, const char* what, SymbolicShape& shape);

// Checks that the clients' `dims` and the file's `reshape` have the same number of elements: as
// many open dimensions, with equal products between them.
Status CheckReshape(const DeclaredPort& port, const char* what);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_PORTS_DECLARED_PORTS_H_
