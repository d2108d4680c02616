// Sets of element types with strings.
#ifndef CHAIRLIFT_TENSOR_TEXT_TYPES_H_
#define CHAIRLIFT_TENSOR_TEXT_TYPES_H_

#include "tensor/dtype.h"

namespace chairlift {

inline constexpr TypeSet kTextType{DType::kBytes};
// For operators that only move or compare elements.
inline constexpr TypeSet kMovableTypes = kAllTypes | kTextType;

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_TEXT_TYPES_H_
