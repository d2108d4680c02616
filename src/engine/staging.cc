#include "engine/staging.h"

#include "base/status.h"

namespace chairlift {
namespace {

constexpr size_t kAlign = 64;  // of every tensor; also what must be readable past its end

size_t Padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign + kAlign; }

}  // namespace

StatusOr<std::vector<Tensor>> Stage(std::span<const TensorDesc> descs, Arena& staging) {
  size_t bytes = 0;
  for (const TensorDesc& desc : descs) {
    const size_t element = DTypeSize(desc.dtype);
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t size, desc.shape.Checked(element));
    bytes += Padded(static_cast<size_t>(size) * element);
  }
  std::byte* place = staging.Reserve(bytes);
  if (place == nullptr) return ResourceExhausted("no memory for {} bytes of inputs", bytes);
  std::vector<Tensor> tensors;
  tensors.reserve(descs.size());
  for (const TensorDesc& desc : descs) {
    tensors.push_back(Tensor::Wrap(desc.dtype, desc.shape, place));
    place += Padded(tensors.back().byte_size());
  }
  return tensors;
}

}  // namespace chairlift
