#include "tensor/staggered.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace chairlift {
namespace {

constexpr size_t kLine = 64;               // of a cache
constexpr size_t kPage = size_t{2} << 20;  // a huge page
// In smaller tensors, more than a quarter would be gaps.
constexpr size_t kStaggeredFrom = 4 * kPage;

size_t Bytes(DType dtype, const Shape& shape) {
  return static_cast<size_t>(shape.NumElements()) * DTypeSize(dtype);
}

// The first position from `at` on that is `phase` bytes into a huge page.
size_t NextAt(size_t phase, size_t at) { return at + (phase + kPage - at % kPage) % kPage; }

}  // namespace

std::vector<Tensor> AllocateStaggered(DType dtype, std::span<const Shape> shapes) {
  std::vector<Tensor> tensors;
  tensors.reserve(shapes.size());
  const bool large = std::all_of(shapes.begin(), shapes.end(), [&](const Shape& shape) {
    return Bytes(dtype, shape) >= kStaggeredFrom;
  });
  if (!large) {
    for (const Shape& shape : shapes) tensors.push_back(Tensor::Allocate(dtype, shape));
    return tensors;
  }
  std::vector<size_t> begins;
  size_t end = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const size_t phase = kPage * i / shapes.size() / kLine * kLine;
    begins.push_back(NextAt(phase, end));
    end = begins.back() + Bytes(dtype, shapes[i]);
  }
  Tensor all = Tensor::Allocate(DType::kUInt8, {static_cast<int64_t>(end)});
  auto* const data = static_cast<std::byte*>(all.raw());
  for (size_t i = 0; i < shapes.size(); ++i) {
    tensors.push_back(Tensor::Wrap(dtype, shapes[i], data + begins[i], all.owner()));
  }
  return tensors;
}

}  // namespace chairlift
