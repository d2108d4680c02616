#include "chairlift/text.h"

#include <cassert>
#include <memory>
#include <utility>

namespace chairlift {

Tensor TextTensor(const Shape& shape, std::vector<std::string> texts) {
  struct Owned {
    std::vector<std::string> texts;
    std::vector<std::string_view> views;
  };
  auto owned = std::make_shared<Owned>();
  owned->texts = std::move(texts);
  owned->views.assign(owned->texts.begin(), owned->texts.end());
  assert(static_cast<int64_t>(owned->views.size()) == shape.NumElements());
  std::string_view* const views = owned->views.data();
  return Tensor::Wrap(DType::kBytes, shape, views, std::move(owned));
}

size_t ContentBytes(const Tensor& tensor) {
  size_t bytes = tensor.byte_size();
  if (tensor.dtype() != DType::kBytes) return bytes;
  for (const std::string_view text : TextsOf(tensor)) bytes += text.size();
  return bytes;
}

}  // namespace chairlift
