// Converts TensorProto and TypeProto to Chairlift's types. Include it only in .cc files, because it
// includes protobuf.
#ifndef CHAIRLIFT_GRAPH_ONNX_TENSOR_PROTO_H_
#define CHAIRLIFT_GRAPH_ONNX_TENSOR_PROTO_H_

#include <optional>
#include <string>

#include "base/status.h"
#include "chairlift/tensor.h"
#include "graph/onnx/detach_weights.h"
#include "graph/onnx/dimension_names.h"
#include "graph/onnx/external_data.h"
#include "onnx/onnx_pb.h"
#include "ops/operator.h"

namespace chairlift {

// The element type of an ONNX TensorProto.DataType number, including those that are newer than the
// protobuf classes. Unimplemented names an unsupported one.
StatusOr<DType> DTypeFromOnnx(int data_type);

// Raw data that was left in the file: it replaces that of the message.
struct RawDataInFile {
  DetachedWeights::Range range;
  const ReadAt& read;
};

// The tensor, copied. `folder` holds external data (none: refused). The claimed size is compared
// with the available bytes before anything is allocated.
StatusOr<Tensor> DecodeTensor(const onnx::TensorProto& proto, const DataFolder& folder,
                              const std::optional<RawDataInFile>& in_file = std::nullopt);

// Whether the tensor has 4-bit elements, which no DType has.
bool IsFourBits(const onnx::TensorProto& proto);
// Such a tensor with an int8 per element; otherwise like DecodeTensor.
StatusOr<Tensor> DecodeFourBits(const onnx::TensorProto& proto, const DataFolder& folder,
                                const std::optional<RawDataInFile>& in_file = std::nullopt);

// The declared element type and shape; names of unknown dimensions become symbols, through `names`.
// kUndefined if there is no type; Unimplemented for sequences, maps, optionals, sparse tensors.
StatusOr<ValueInfo> DecodeType(const onnx::TypeProto& proto, DimensionNames& names);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_TENSOR_PROTO_H_
