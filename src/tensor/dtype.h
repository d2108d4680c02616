// Sets of element types, and running generic code for a given type.
#ifndef CHAIRLIFT_TENSOR_DTYPE_H_
#define CHAIRLIFT_TENSOR_DTYPE_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

class TypeSet {
 public:
  constexpr TypeSet() = default;
  constexpr TypeSet(std::initializer_list<DType> types) {
    for (DType t : types) bits_ |= Bit(t);
  }
  constexpr bool Contains(DType t) const { return (bits_ & Bit(t)) != 0; }
  friend constexpr TypeSet operator|(TypeSet a, TypeSet b) {
    TypeSet r;
    r.bits_ = a.bits_ | b.bits_;
    return r;
  }
  std::string ToString() const;  // "float32, int64"

 private:
  static constexpr uint32_t Bit(DType t) { return 1u << static_cast<int>(t); }
  uint32_t bits_ = 0;
};

inline constexpr TypeSet kHalfTypes{DType::kFloat16, DType::kBFloat16};
inline constexpr TypeSet kFullFloatTypes{DType::kFloat, DType::kDouble};
inline constexpr TypeSet kFloatTypes = kHalfTypes | kFullFloatTypes;
inline constexpr TypeSet kSignedTypes{DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
inline constexpr TypeSet kUnsignedTypes{DType::kUInt8, DType::kUInt16, DType::kUInt32,
                                        DType::kUInt64};
inline constexpr TypeSet kIntegerTypes = kSignedTypes | kUnsignedTypes;
inline constexpr TypeSet kNumericTypes = kFloatTypes | kIntegerTypes;
inline constexpr TypeSet kBoolType{DType::kBool};
inline constexpr TypeSet kAllTypes = kNumericTypes | kBoolType;
inline constexpr TypeSet kIndexTypes{DType::kInt32, DType::kInt64};

// kUnimplemented: "element type int4 is not supported here".
Status UnsupportedType(DType dtype);

// Calls f.template operator()<T>() with the C++ type of `dtype`, which must be one of Ts. f returns
// the same type R for every T. Other dtypes return Unimplemented, so R must be constructible from a
// Status.
template <typename... Ts, typename F>
auto DispatchTypes(DType dtype, F&& f) {
  using R = decltype(f.template operator()<std::tuple_element_t<0, std::tuple<Ts...>>>());
  std::optional<R> result;
  (void)((dtype == DTypeOf<Ts>::kValue && (result.emplace(f.template operator()<Ts>()), true)) ||
         ...);
  return result ? *std::move(result) : R(UnsupportedType(dtype));
}
template <typename F>
auto DispatchNumeric(DType dtype, F&& f) {
  return DispatchTypes<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                       uint32_t, uint64_t>(dtype, std::forward<F>(f));
}
template <typename F>
auto DispatchFloat(DType dtype, F&& f) {
  return DispatchTypes<float, double>(dtype, std::forward<F>(f));
}
template <typename F>
auto DispatchIndex(DType dtype, F&& f) {
  return DispatchTypes<int32_t, int64_t>(dtype, std::forward<F>(f));
}
// For code that only moves elements: the unsigned type of the element's width.
template <typename F>
auto DispatchWidth(DType dtype, F&& f) {
  switch (DTypeSize(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_DTYPE_H_
