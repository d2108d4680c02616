// Recognises files of other formats by their first bytes, for errors.
#ifndef CHAIRLIFT_GRAPH_ONNX_OTHER_FORMATS_H_
#define CHAIRLIFT_GRAPH_ONNX_OTHER_FORMATS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace chairlift {

// Enough of a file for OtherFormat().
inline constexpr int64_t kFormatBytes = 4096;

// "not an ONNX model but a GGUF file: …", with what would work. `head`: the first kFormatBytes of a
// file of `size` bytes, or all of it. `has_no_graph`: it is a protobuf message, without a graph.
std::string OtherFormat(std::string_view head, int64_t size, bool has_no_graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_OTHER_FORMATS_H_
