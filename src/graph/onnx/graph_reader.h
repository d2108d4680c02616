// GraphProto to Graph: names resolved, nodes ordered, functions inlined, captures made explicit.
// Only for .cc files: it brings in protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_GRAPH_READER_H_
#define CHAIRLIFT_GRAPH_ONNX_GRAPH_READER_H_

#include "graph/ir.h"
#include "graph/onnx/detach_weights.h"
#include "graph/onnx/external_data.h"
#include "onnx/onnx_pb.h"

namespace chairlift {

inline constexpr int kMinOpset = 6;
inline constexpr int kMaxOpset = 28;

// The model's graph, in normalised form, with the shapes that could be inferred on the way;
// `opset` takes the version of the default domain. `weights` holds what was left out of the
// model's own initialisers. Tensor bytes are released from `model` as they are copied.
StatusOr<Graph> ReadGraph(onnx::ModelProto& model, const DetachedWeights& weights,
                          const DataFolder& data_folder, int* opset);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_GRAPH_READER_H_
