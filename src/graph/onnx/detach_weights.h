// Parses a model file without its large weights. protobuf parses the rest, and the bytes of the
// weights go directly from the file to their destination. Parsed as a whole, they would be copied
// twice more.
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
  // The initialisers of the model's graph whose raw_data was left out, by index.
  std::unordered_map<int, Range> ranges;
  ReadAt read;
};

// Returns the file's bytes, as a message of the same type, without the raw_data of those
// initialisers that have at least `min_bytes` of it; these are listed in `*weights`. Nothing if the
// file is not clearly a model: its bytes should then be parsed unchanged, which reports the error.
// Fails only if reading fails. Uses memory for the result and a constant amount besides.
StatusOr<std::optional<std::string>> DetachWeights(int64_t file_bytes, int64_t min_bytes,
                                                   ReadAt read, DetachedWeights* weights);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_DETACH_WEIGHTS_H_
