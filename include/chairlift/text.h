// Tensors of strings (any bytes) in requests, Python models, and models that run as a whole. Code
// that copies elements copies views: it must keep the owner of their bytes, or Clone() the result.
#ifndef CHAIRLIFT_TEXT_H_
#define CHAIRLIFT_TEXT_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift {

// Elements are std::string_view; the tensor's owner keeps their bytes. Tensor::Allocate() makes
// empty strings.
template <>
struct DTypeOf<std::string_view> {
  static constexpr DType kValue = DType::kBytes;
};

// Owns the strings, whose count must equal shape.NumElements().
Tensor TextTensor(const Shape& shape, std::vector<std::string> texts);
inline std::span<const std::string_view> TextsOf(const Tensor& tensor) {
  return tensor.values<std::string_view>();
}
// All bytes that it holds: Tensor::byte_size(), plus the strings if it is kBytes.
size_t ContentBytes(const Tensor& tensor);

}  // namespace chairlift

#endif  // CHAIRLIFT_TEXT_H_
