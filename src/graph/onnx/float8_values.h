// Values of ONNX's 8-bit floats, which the graph holds as float32: how they are read from files,
// and which operators may read them.
#ifndef CHAIRLIFT_GRAPH_ONNX_FLOAT8_VALUES_H_
#define CHAIRLIFT_GRAPH_ONNX_FLOAT8_VALUES_H_

#include <optional>
#include <vector>

#include "graph/onnx/normalise.h"
#include "graph/onnx/tensor_proto.h"
#include "ops/quantization/float8.h"

namespace chairlift {

// A tensor of this format, with a float32 per element; otherwise like DecodeTensor.
StatusOr<Tensor> DecodeFloat8(const onnx::TensorProto& proto, Float8 format,
                              const DataFolder& folder,
                              const std::optional<RawDataInFile>& in_file = std::nullopt);

// The formats of a node's inputs; nullopt for values of other types.
using Float8Inputs = std::vector<std::optional<Float8>>;

// Unimplemented if the operator does not take such inputs.
Status CheckFloat8Inputs(const OnnxNode& node, const Float8Inputs& inputs);
// The format of output 0, if it has one.
std::optional<Float8> Float8Output(const OnnxNode& node, const Float8Inputs& inputs);
// Rewrites a node that reads or gives such values into operators on float32. Others do not change.
Status NormaliseFloat8(OnnxNode& node, const Float8Inputs& inputs, Rewriter& rewriter);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_FLOAT8_VALUES_H_
