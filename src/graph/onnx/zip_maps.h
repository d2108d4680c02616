// ZipMap of ai.onnx.ml makes maps of the columns of a classifier's scores, only for the model's
// outputs.
#ifndef CHAIRLIFT_GRAPH_ONNX_ZIP_MAPS_H_
#define CHAIRLIFT_GRAPH_ONNX_ZIP_MAPS_H_

#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace chairlift {

// Every output of the model that a ZipMap makes becomes the tensor that the ZipMap reads. Returns
// the names of these outputs. A ZipMap whose maps other nodes read is left as it is.
std::vector<std::string> DropZipMaps(onnx::GraphProto& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_ZIP_MAPS_H_
