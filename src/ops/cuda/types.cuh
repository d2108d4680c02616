// Element types on the device: loads and stores through float, and dispatch.
#ifndef CHAIRLIFT_OPS_CUDA_TYPES_CUH_
#define CHAIRLIFT_OPS_CUDA_TYPES_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

using Half = __half;
using BHalf = __nv_bfloat16;

// The type in which an element is computed.
template <typename T>
struct ComputeType {
  using Type = T;
};
template <>
struct ComputeType<Half> {
  using Type = float;
};
template <>
struct ComputeType<BHalf> {
  using Type = float;
};
template <typename T>
using Compute = typename ComputeType<T>::Type;

template <typename T>
__device__ __forceinline__ Compute<T> Load(const T* p) {
  if constexpr (std::is_same_v<T, Half>) {
    return __half2float(*p);
  } else if constexpr (std::is_same_v<T, BHalf>) {
    return __bfloat162float(*p);
  } else {
    return *p;
  }
}
template <typename T>
__device__ __forceinline__ void Store(T* p, Compute<T> value) {
  if constexpr (std::is_same_v<T, Half>) {
    *p = __float2half_rn(value);
  } else if constexpr (std::is_same_v<T, BHalf>) {
    *p = __float2bfloat16_rn(value);
  } else {
    *p = value;
  }
}

// Calls f.template operator()<T>() with the device's type for `dtype` if it is one of these;
// otherwise returns false.
template <typename F>
bool ForFloats(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat:
      f.template operator()<float>();
      return true;
    case DType::kDouble:
      f.template operator()<double>();
      return true;
    case DType::kFloat16:
      f.template operator()<Half>();
      return true;
    case DType::kBFloat16:
      f.template operator()<BHalf>();
      return true;
    default:
      return false;
  }
}
template <typename F>
bool ForIntegers(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kInt8:
      f.template operator()<int8_t>();
      return true;
    case DType::kInt16:
      f.template operator()<int16_t>();
      return true;
    case DType::kInt32:
      f.template operator()<int32_t>();
      return true;
    case DType::kInt64:
      f.template operator()<int64_t>();
      return true;
    case DType::kUInt8:
      f.template operator()<uint8_t>();
      return true;
    case DType::kUInt16:
      f.template operator()<uint16_t>();
      return true;
    case DType::kUInt32:
      f.template operator()<uint32_t>();
      return true;
    case DType::kUInt64:
      f.template operator()<uint64_t>();
      return true;
    default:
      return false;
  }
}
template <typename F>
bool ForNumbers(DType dtype, F&& f) {
  return ForFloats(dtype, f) || ForIntegers(dtype, f);
}
// By width alone, for code that moves elements.
template <typename F>
void ForWidth(size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      f.template operator()<uint8_t>();
      break;
    case 2:
      f.template operator()<uint16_t>();
      break;
    case 4:
      f.template operator()<uint32_t>();
      break;
    default:
      f.template operator()<uint64_t>();
  }
}

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_TYPES_CUH_
