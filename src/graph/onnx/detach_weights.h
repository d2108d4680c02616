// A model file without its large weights: protobuf parses what is left, and the weights' bytes go
// from the file straight to where they are used. Parsed whole, they would be copied twice more.
#ifndef CHAIRLIFT_GRAPH_ONNX_DETACH_WEIGHTS_H_
#define CHAIRLIFT_GRAPH_ONNX_DETACH_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/status.h"

namespace chairlift {

// Fills `destination` with bytes [offset, offset + bytes) of the file.
using ReadAt = std::function<Status(int64_t offset, int64_t bytes, void* destination)>;

struct DetachedWeights {
  struct Range {
    int64_t offset;
    int64_t bytes;
  };
  // Of the initialisers of the model's graph, by index, those whose raw_data was left out.
  std::unordered_map<int, Range> ranges;
  ReadAt read;
};

// Returns the file's bytes, as a message of the same kind, without the raw_data of those
// initialisers that have at least `min_bytes` of it; they are listed in `*weights`. Nothing where
// the file is not plainly a model: its bytes are then to be parsed as they are, which says why.
// Fails only where reading does. Uses memory for what it returns and nothing that grows with the
// file besides.
StatusOr<std::optional<std::string>> DetachWeights(int64_t file_bytes, int64_t min_bytes,
                                                   ReadAt read, DetachedWeights* weights);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_DETACH_WEIGHTS_H_
