// Tensors of texts, or of any bytes: what requests bring and functions take. Models' graphs have
// none, so that code over their element types need not know this one.
#ifndef CHAIRLIFT_TEXT_H_
#define CHAIRLIFT_TEXT_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift {

// Elements are std::string_view, whose bytes the tensor's owner keeps. Tensor::Allocate() makes
// empty ones.
template <>
struct DTypeOf<std::string_view> {
  static constexpr DType kValue = DType::kBytes;
};

// It owns the texts, whose count must equal shape.NumElements().
Tensor TextTensor(const Shape& shape, std::vector<std::string> texts);
inline std::span<const std::string_view> TextsOf(const Tensor& tensor) {
  return tensor.values<std::string_view>();
}
// All that it holds: Tensor::byte_size(), and of kBytes the texts.
size_t ContentBytes(const Tensor& tensor);

}  // namespace chairlift

#endif  // CHAIRLIFT_TEXT_H_
