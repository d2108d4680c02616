#include "engine/programs/process/model_caller.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

constexpr size_t kAnswerAlign = 64;

size_t RoundedUp(size_t bytes) { return (bytes + kAnswerAlign - 1) / kAnswerAlign * kAnswerAlign; }

}  // namespace

StatusOr<InferRequest> ModelCaller::RequestOf(const WorkerCall& call, const SharedRegion& region,
                                              std::optional<TimePoint> deadline) const {
  if (calls_ == nullptr || std::count(allowed_.begin(), allowed_.end(), call.model) == 0) {
    return InvalidArgument(
        "the function calls model '{}', which `calls` in its model.yaml does not name{}",
        call.model.substr(0, 256),
        allowed_.empty() ? "" : fmt::format("; it names: {}", fmt::join(allowed_, ", ")));
  }
  InferRequest request;
  request.model = call.model;
  for (const auto& [name, placed] : call.inputs) {
    const size_t bytes = static_cast<size_t>(placed.shape.NumElements()) * DTypeSize(placed.dtype);
    Tensor tensor = Tensor::Allocate(placed.dtype, placed.shape);
    // A copy, because the worker may write there even now.
    if (bytes > 0) std::memcpy(tensor.raw(), region.data() + placed.offset, bytes);
    if (placed.dtype == DType::kBool) {
      auto* const values = static_cast<uint8_t*>(tensor.raw());
      for (size_t i = 0; i < bytes; ++i) values[i] = values[i] != 0;
    }
    request.inputs.push_back({name, std::move(tensor)});
  }
  std::optional<std::chrono::microseconds> left;
  if (call.timeout_us > 0) left = std::chrono::microseconds(call.timeout_us);
  if (deadline) {
    const auto of_batch = std::chrono::duration_cast<std::chrono::microseconds>(
        std::max(*deadline - Clock::Steady().Now(), Duration(0)));
    left = left ? std::min(*left, of_batch) : of_batch;
  }
  request.timeout = left;
  return request;
}

void ModelCaller::Begin(const WorkerCall& call, const SharedRegion& region,
                        std::optional<TimePoint> deadline) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (process_ == nullptr) return;
    if (running_.size() >= kMostCalls) {
      (void)process_->Send(
          EncodeCallFailed(
              call.call, ResourceExhausted("more than {} calls of the function wait", kMostCalls)),
          {});
      return;
    }
    running_.emplace(call.call, std::nullopt);
  }
  StatusOr<InferRequest> request =
      CatchOutOfMemory([&] { return RequestOf(call, region, deadline); });
  if (!request.ok()) return Answer(call.call, request.status());
  const StatusOr<CalledModel> model = calls_->Find(call.model);
  if (!model.ok()) return Answer(call.call, model.status());
  const RequestId number =
      calls_->Begin(*model, *std::move(request),
                    [self = shared_from_this(), id = call.call](
                        const StatusOr<InferResponse>& answer) { self->Answer(id, answer); });
  bool cancel = false;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = running_.find(call.call);
  if (found != running_.end()) {
    found->second = number;
  } else {
    cancel = true;  // unless it was answered meanwhile, which makes this do nothing
  }
  lock.unlock();
  if (cancel) calls_->Cancel(number);
}

void ModelCaller::Answer(uint64_t call, const StatusOr<InferResponse>& answer) {
  std::unique_ptr<SharedRegion> region;
  std::vector<NamedPlacedTensor> outputs;
  Status status = answer.status();
  if (status.ok()) {
    status = CatchOutOfMemory([&]() -> Status {
      size_t bytes = 0;
      for (const NamedTensor& output : answer->outputs) {
        if (output.tensor.dtype() == kBytes) {
          return Unimplemented("output '{}' is text, which functions cannot ask for", output.name);
        }
        outputs.push_back({output.name, {output.tensor.dtype(), output.tensor.shape(), bytes}});
        bytes += RoundedUp(output.tensor.byte_size());
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(region, SharedRegion::Create(bytes));
      for (size_t i = 0; i < outputs.size(); ++i) {
        const Tensor& tensor = answer->outputs[i].tensor;
        if (tensor.byte_size() == 0) continue;
        std::memcpy(region->data() + outputs[i].tensor.offset, tensor.raw(), tensor.byte_size());
      }
      return absl::OkStatus();
    });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (running_.erase(call) == 0 || process_ == nullptr) return;  // nobody waits for it any more
  StatusOr<std::string> message =
      status.ok() ? EncodeAnswer(call, region->size(), outputs) : StatusOr<std::string>(status);
  if (!message.ok()) {
    (void)process_->Send(EncodeCallFailed(call, message.status()), {});
    return;
  }
  const int descriptor = region->descriptor();
  if (!process_->Send(*message, {&descriptor, 1}).ok()) process_->Kill();
}

void ModelCaller::CancelAll() {
  std::map<uint64_t, std::optional<RequestId>> running;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running.swap(running_);
  }
  for (const auto& [call, number] : running) {
    if (number) calls_->Cancel(*number);
  }
}

void ModelCaller::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    process_ = nullptr;
  }
  CancelAll();
}

}  // namespace chairlift
