// Requests whose cells run on another device than the CPU: copying their tensors there and back.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "engine/programs/cells/cell_request.h"

namespace chairlift {

Status CellRequest::WaitForPlaces(const Stream& stream) const {
  if (placed_ == nullptr || placed_on_ == &stream) return absl::OkStatus();
  return placed_->Wait();
}

std::span<const Tensor> CellRequest::Unplaced() const {
  return std::span(tensors_.data(), tensors_.size()).subspan(there_.size());
}

void CellRequest::Place(int placed, std::span<const Tensor> there,
                        const std::shared_ptr<Event>& copied, const Stream& stream) {
  if (placed != num_placed()) return;
  there_.insert(there_.end(), there.begin(), there.end());
  placed_ = copied;
  placed_on_ = &stream;
}

Status CellRequest::CopyBack(int32_t tensor, int64_t begin, int64_t end, Stream& stream) {
  auto* const host = static_cast<std::byte*>(tensors_[tensor].raw());
  const auto* const there =
      static_cast<const std::byte*>(there_[static_cast<size_t>(tensor)].raw());
  return stream.CopyOut(host + begin, there + begin, static_cast<size_t>(end - begin));
}

Status CellRequest::ReturnParts(std::span<const Copy> copies, Stream& stream) {
  if (parts_ == nullptr || stream.device().is_host()) return absl::OkStatus();
  for (const Copy& copy : copies) {
    int64_t begin = 0, end = copy.to_bytes;
    if (copy.row_bytes >= 0) {
      const int64_t further = (copy.end - 1 - copy.begin) * copy.stride;
      const int64_t chunk = copy.target.chunk == 0 ? copy.row_bytes : copy.target.chunk;
      const int64_t pieces = copy.row_bytes / std::max<int64_t>(chunk, 1);
      begin = copy.target.offset + std::min<int64_t>(further, 0);
      end = copy.target.offset + std::max<int64_t>(further, 0) +
            (copy.rows - 1) * copy.target.row_stride +
            std::max<int64_t>(pieces - 1, 0) * copy.target.chunk_stride + chunk;
    }
    if (copy.rows == 0 || begin < 0 || end > copy.to_bytes) continue;  // Make() reports the error
    CHAIRLIFT_RETURN_IF_ERROR(CopyBack(copy.target.tensor, begin, end, stream));
  }
  return absl::OkStatus();
}

std::vector<CellRequest::Delivered> CellRequest::ToReturn() {
  std::vector<Delivered> delivered;
  if (parts_ != nullptr || std::exchange(returned_, true)) return delivered;
  std::vector<bool> seen(tensors_.size());
  for (const Delivery& delivery : deliveries_) {
    const auto tensor = static_cast<size_t>(delivery.target.tensor);
    if (seen[tensor]) continue;
    seen[tensor] = true;
    delivered.push_back({&there_[tensor], &tensors_[tensor]});
  }
  return delivered;
}

}  // namespace chairlift
