// Maps the names of dimensions in a file to symbols of bounded length.
#ifndef CHAIRLIFT_GRAPH_ONNX_DIMENSION_NAMES_H_
#define CHAIRLIFT_GRAPH_ONNX_DIMENSION_NAMES_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace chairlift {

// One instance per file. Not thread-safe.
//
// Exporters write expressions of any length as names, and symbols are copied, compared and parsed
// throughout the graph. So a long name is kept once, here, and the graph uses a short symbol. Two
// names get the same symbol exactly if they are equal.
class DimensionNames {
 public:
  static constexpr size_t kMaxSymbolLength = 256;  // characters

  // The symbol for `name`: the name itself, or, if it is too long, its first characters and a
  // number, as in "floor(height/32)~(0)". This counts as an expression, not a product.
  std::string Symbol(const std::string& name);

 private:
  absl::flat_hash_map<std::string, std::string> shortened_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_DIMENSION_NAMES_H_
