// Names of element types in the Open Inference Protocol, also used in every error about a request.
#ifndef CHAIRLIFT_TENSOR_DATATYPE_H_
#define CHAIRLIFT_TENSOR_DATATYPE_H_

#include <string_view>

#include "chairlift/tensor.h"

namespace chairlift {

// "FP32", "INT64", "BOOL", "BYTES"; empty for kUndefined.
std::string_view DatatypeName(DType dtype);
// kUndefined for an unsupported name ("FP8", "fp32", ...).
DType DatatypeFromName(std::string_view name);

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_DATATYPE_H_
