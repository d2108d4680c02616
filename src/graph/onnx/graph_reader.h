// Converts GraphProto to Graph: resolves names, orders nodes, inlines functions, makes captures
// explicit. Include it only in .cc files, because it includes protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_GRAPH_READER_H_
#define CHAIRLIFT_GRAPH_ONNX_GRAPH_READER_H_

#include <string>
#include <vector>

#include "graph/ir.h"
#include "graph/onnx/detach_weights.h"
#include "graph/onnx/external_data.h"
#include "graph/onnx/import.h"
#include "onnx/onnx_pb.h"

namespace chairlift {

inline constexpr int kMinOpset = 1;
inline constexpr int kMaxOpset = 28;

// Sets the model's graph in normalised form, with the shapes that could be inferred on the way, its
// opset and its seeds, and sentences on what differs from the file. `weights` holds the data left
// out of the model's own initialisers. Tensor bytes are released from `model` as they are copied.
Status ReadGraph(onnx::ModelProto& model, const DetachedWeights& weights,
                 const DataFolder& data_folder, ImportedModel* imported);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_GRAPH_READER_H_
