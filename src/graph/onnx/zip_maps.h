// Replaces the maps at the ends of a model of ai.onnx.ml by tensors: those that ZipMap makes from a
// classifier's scores, and those that DictVectorizer reads.
#ifndef CHAIRLIFT_GRAPH_ONNX_ZIP_MAPS_H_
#define CHAIRLIFT_GRAPH_ONNX_ZIP_MAPS_H_

#include <string>
#include <vector>

#include "onnx/onnx_pb.h"

namespace chairlift {

// Every output of the model that a ZipMap makes becomes the tensor that the ZipMap reads. Returns
// the names of these outputs. A ZipMap whose maps other nodes read is left as it is.
std::vector<std::string> DropZipMaps(onnx::GraphProto& graph);

// A DictVectorizer makes one row of numbers of a map, with a column for each key of its vocabulary.
// If the map is an input of the model that nothing else reads, the input becomes the tensor of such
// rows, [rows, columns], and the node an Identity. Returns what changed, in words.
std::vector<std::string> DropDictVectorizers(onnx::GraphProto& graph);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_ZIP_MAPS_H_
