// ONNX's numbers for element types, as used in attributes (Cast's `to`, a window's type).
#ifndef CHAIRLIFT_OPS_ELEMENT_TYPE_H_
#define CHAIRLIFT_OPS_ELEMENT_TYPE_H_

#include <cstdint>
#include <iterator>

#include "chairlift/tensor.h"

namespace chairlift {

// The element type for a TensorProto.DataType number; kUndefined for those without tensors here
// (strings, complex numbers, 8-bit floats).
inline DType ElementTypeOfOnnx(int64_t number) {
  constexpr DType kTypes[] = {
      DType::kUndefined, DType::kFloat,   DType::kUInt8,  DType::kInt8,      DType::kUInt16,
      DType::kInt16,     DType::kInt32,   DType::kInt64,  DType::kUndefined, DType::kBool,
      DType::kFloat16,   DType::kDouble,  DType::kUInt32, DType::kUInt64,    DType::kUndefined,
      DType::kUndefined, DType::kBFloat16};
  return number >= 0 && number < static_cast<int64_t>(std::size(kTypes)) ? kTypes[number]
                                                                         : DType::kUndefined;
}

// The number of a type that has one; 0 for others.
inline int64_t OnnxOfElementType(DType dtype) {
  constexpr int64_t kNumbers = 17;
  for (int64_t number = 1; number < kNumbers; ++number) {
    if (ElementTypeOfOnnx(number) == dtype) return number;
  }
  return 0;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENT_TYPE_H_
