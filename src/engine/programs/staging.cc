#include "engine/programs/staging.h"

#include "base/status.h"

namespace chairlift {
namespace {

constexpr size_t kStagedAlign = 64;  // of every tensor; also the readable bytes past its end

size_t StagedSize(size_t bytes) {
  return (bytes + kStagedAlign - 1) / kStagedAlign * kStagedAlign + kStagedAlign;
}

}  // namespace

StatusOr<std::vector<Tensor>> Stage(std::span<const TensorDesc> descs, Arena& staging) {
  size_t bytes = 0;
  for (const TensorDesc& desc : descs) {
    const size_t element = DTypeSize(desc.dtype);
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t size, desc.shape.Checked(element));
    bytes += StagedSize(static_cast<size_t>(size) * element);
  }
  std::byte* place = staging.Reserve(bytes);
  if (place == nullptr) return ResourceExhausted("no memory for {} bytes of inputs", bytes);
  std::vector<Tensor> tensors;
  tensors.reserve(descs.size());
  for (const TensorDesc& desc : descs) {
    tensors.push_back(Tensor::Wrap(desc.dtype, desc.shape, place));
    place += StagedSize(tensors.back().byte_size());
  }
  return tensors;
}

}  // namespace chairlift
