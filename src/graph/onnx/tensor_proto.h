// TensorProto and TypeProto to our own types. Only for .cc files: it brings in protobuf.
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

// The element type of an ONNX TensorProto.DataType number, those of newer releases than our
// protobuf classes included; Unimplemented names one we do not run.
StatusOr<DType> DTypeFromOnnx(int data_type);

// Raw data that was left in the file: it takes the place of the message's own.
struct RawDataInFile {
  DetachedWeights::Range range;
  const ReadAt& read;
};

// The tensor, copied. `folder` holds external data (none: refused). What the tensor claims to
// hold is compared with the bytes that are there before anything is allocated.
StatusOr<Tensor> DecodeTensor(const onnx::TensorProto& proto, const DataFolder& folder,
                              const std::optional<RawDataInFile>& in_file = std::nullopt);

// Whether the tensor's elements are of 4 bits, which no value of ours has.
bool IsFourBits(const onnx::TensorProto& proto);
// Such a tensor with an int8 for each element; as DecodeTensor otherwise.
StatusOr<Tensor> DecodeFourBits(const onnx::TensorProto& proto, const DataFolder& folder,
                                const std::optional<RawDataInFile>& in_file = std::nullopt);

// The declared element type and shape; names of unknown dimensions become symbols, through
// `names`. kUndefined where the type is not given at all; Unimplemented for sequences, maps,
// optionals, sparse tensors.
StatusOr<ValueInfo> DecodeType(const onnx::TypeProto& proto, DimensionNames& names);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_TENSOR_PROTO_H_
