#include "ops/linear/huge_tensor.h"

#include <sys/mman.h>

#include <memory>
#include <new>

namespace chairlift {

Tensor HugeTensor(DType dtype, const Shape& shape) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = static_cast<size_t>(shape.NumElements()) * DTypeSize(dtype);
  if (bytes < kHugePage / 2) return Tensor::Allocate(dtype, shape);
  const size_t rounded = (bytes + 64 + kHugePage - 1) / kHugePage * kHugePage;
  void* data = ::operator new (rounded, std::align_val_t{kHugePage}, std::nothrow);
  if (data == nullptr) return Tensor::Allocate(dtype, shape);
  madvise(data, rounded, MADV_HUGEPAGE);
  const auto free = [](const void* p) {
    ::operator delete (const_cast<void*>(p), std::align_val_t{kHugePage});
  };
  return Tensor::Wrap(dtype, shape, data, std::shared_ptr<const void>(data, free));
}

}  // namespace chairlift
