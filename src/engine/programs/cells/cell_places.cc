#include "engine/programs/cells/cell_places.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"

namespace chairlift {
namespace {

// For every tensor: alignment for vector loads, and readable past the end.
size_t Room(const Tensor& tensor) {
  constexpr size_t kAlign = 64;
  return (tensor.byte_size() + kAlign - 1) / kAlign * kAlign + kAlign;
}

Tensor Slice(const Tensor& block, size_t offset, const Tensor& like) {
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(block.raw())) + offset;
  return Tensor::Wrap(like.dtype(), like.shape(), bytes, block.owner(), block.device());
}

Shape Bytes(size_t bytes) { return Shape{static_cast<int64_t>(bytes)}; }

}  // namespace

Status PlaceTensors(std::span<CellRequest* const> requests, Stream& stream) {
  if (stream.device().is_host()) return absl::OkStatus();
  struct New {
    CellRequest* request = nullptr;
    int placed = 0;               // before them
    std::vector<Tensor> tensors;  // without a place
  };
  std::vector<New> all;
  size_t bytes = 0;
  for (CellRequest* const request : requests) {
    const std::lock_guard<std::mutex> own(request->mutex());
    CHAIRLIFT_RETURN_IF_ERROR(request->WaitForPlaces(stream));
    const std::span<const Tensor> unplaced = request->Unplaced();
    if (unplaced.empty()) continue;
    all.push_back({request, request->num_placed(), {unplaced.begin(), unplaced.end()}});
    for (const Tensor& tensor : unplaced) bytes += Room(tensor);
  }
  if (all.empty()) return absl::OkStatus();
  Tensor host = Tensor::Allocate(DType::kUInt8, Bytes(bytes));
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor block, stream.NewTensor(DType::kUInt8, Bytes(bytes)));
  auto* const to = static_cast<std::byte*>(host.raw());
  size_t offset = 0;
  for (const New& of_request : all) {
    for (const Tensor& tensor : of_request.tensors) {
      if (tensor.byte_size() > 0) std::memcpy(to + offset, tensor.raw(), tensor.byte_size());
      offset += Room(tensor);
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(stream.CopyIn(block.raw(), host.raw(), bytes));
  stream.Keep(host.owner());
  const std::shared_ptr<Event> copied = stream.Record();
  offset = 0;
  for (const New& of_request : all) {
    std::vector<Tensor> there;
    for (const Tensor& tensor : of_request.tensors) {
      there.push_back(Slice(block, offset, tensor));
      offset += Room(tensor);
    }
    const std::lock_guard<std::mutex> own(of_request.request->mutex());
    of_request.request->Place(of_request.placed, there, copied, stream);
    // Another task may have placed them: wait for its copies.
    CHAIRLIFT_RETURN_IF_ERROR(of_request.request->WaitForPlaces(stream));
  }
  return absl::OkStatus();
}

Status ReturnAnswers(std::span<CellRequest* const> requests, Stream& stream) {
  if (stream.device().is_host()) return absl::OkStatus();
  std::vector<CellRequest::Delivered> all;
  size_t bytes = 0;
  for (CellRequest* const request : requests) {
    const std::lock_guard<std::mutex> own(request->mutex());
    for (const CellRequest::Delivered& delivered : request->ToReturn()) {
      if (delivered.there->byte_size() == 0) continue;
      all.push_back(delivered);
      bytes += Room(*delivered.host);
    }
  }
  if (all.empty()) return absl::OkStatus();
  Tensor host = Tensor::Allocate(DType::kUInt8, Bytes(bytes));
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor block, stream.NewTensor(DType::kUInt8, Bytes(bytes)));
  std::map<size_t, std::vector<Stream::RowCopy>> copies;  // by row bytes
  auto* to = static_cast<std::byte*>(block.raw());
  for (const CellRequest::Delivered& delivered : all) {
    copies[delivered.there->byte_size()].push_back(
        {static_cast<const std::byte*>(delivered.there->raw()), to});
    to += Room(*delivered.host);
  }
  for (const auto& [size, of_size] : copies) {
    CHAIRLIFT_RETURN_IF_ERROR(stream.CopyRows(of_size, size));
  }
  CHAIRLIFT_RETURN_IF_ERROR(stream.CopyOut(host.raw(), block.raw(), bytes));
  CHAIRLIFT_RETURN_IF_ERROR(stream.Record()->Wait());
  const auto* from = static_cast<const std::byte*>(std::as_const(host).raw());
  for (const CellRequest::Delivered& delivered : all) {
    std::memcpy(delivered.host->raw(), from, delivered.host->byte_size());
    from += Room(*delivered.host);
  }
  return absl::OkStatus();
}

}  // namespace chairlift
