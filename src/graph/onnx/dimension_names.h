// The names that a file gives to dimensions, as symbols of a bounded length.
#ifndef CHAIRLIFT_GRAPH_ONNX_DIMENSION_NAMES_H_
#define CHAIRLIFT_GRAPH_ONNX_DIMENSION_NAMES_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace chairlift {

// One a file. Not thread-safe.
//
// Exporters write expressions of any length as names, and symbols are copied, compared and taken
// apart all over the graph: a long name is kept once, here, and stands in the graph under a short
// one. Two names get the same symbol exactly where they are equal.
class DimensionNames {
 public:
  static constexpr size_t kMaxSymbolLength = 256;  // characters

  // The symbol for `name`: the name itself, or where it is longer than a symbol may be its first
  // characters and a number, "floor(height/32)~(0)", which counts as an expression, not a product.
  std::string Symbol(const std::string& name);

 private:
  absl::flat_hash_map<std::string, std::string> shortened_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_DIMENSION_NAMES_H_
