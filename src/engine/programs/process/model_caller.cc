#include "engine/programs/process/model_caller.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/excerpt.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

constexpr size_t kAnswerAlign = 64;

size_t RoundedUp(size_t bytes) { return (bytes + kAnswerAlign - 1) / kAnswerAlign * kAnswerAlign; }

// A copy of the strings that follow their offsets in the region.
StatusOr<Tensor> CopyTexts(const std::string& name, const PlacedTensor& placed,
                           const SharedRegion& region) {
  std::vector<int64_t> offsets(static_cast<size_t>(placed.shape.NumElements()) + 1);
  const size_t head = offsets.size() * sizeof(offsets[0]);
  std::memcpy(offsets.data(), region.data() + placed.offset, head);
  const size_t room = region.size() - placed.offset - head;
  if (offsets.front() != 0 || !std::is_sorted(offsets.begin(), offsets.end()) ||
      static_cast<size_t>(offsets.back()) > room) {
    return InvalidArgument("the texts of input '{}' do not lie in the memory given", name);
  }
  const auto* const bytes = reinterpret_cast<const char*>(region.data() + placed.offset + head);
  std::vector<std::string> texts;
  texts.reserve(offsets.size() - 1);
  for (size_t i = 1; i < offsets.size(); ++i) {
    texts.emplace_back(bytes + offsets[i - 1], static_cast<size_t>(offsets[i] - offsets[i - 1]));
  }
  return TextTensor(placed.shape, std::move(texts));
}

// Bytes of an output in a region.
size_t BytesIn(const Tensor& tensor) {
  if (tensor.dtype() != DType::kBytes) return tensor.byte_size();
  return (static_cast<size_t>(tensor.size()) + 1) * sizeof(int64_t) + ContentBytes(tensor) -
         tensor.byte_size();
}

void PutOutput(const Tensor& tensor, std::byte* place) {
  if (tensor.dtype() != DType::kBytes) {
    if (tensor.byte_size() > 0) std::memcpy(place, tensor.raw(), tensor.byte_size());
    return;
  }
  std::byte* bytes = place + (static_cast<size_t>(tensor.size()) + 1) * sizeof(int64_t);
  int64_t end = 0;
  std::memcpy(place, &end, sizeof(end));
  for (const std::string_view text : TextsOf(tensor)) {
    if (!text.empty()) std::memcpy(bytes + end, text.data(), text.size());
    end += static_cast<int64_t>(text.size());
    place += sizeof(end);
    std::memcpy(place, &end, sizeof(end));
  }
}

}  // namespace

StatusOr<InferRequest> ModelCaller::RequestOf(const WorkerCall& call, const SharedRegion& region,
                                              std::optional<TimePoint> deadline) const {
  const auto model = allowed_.find(call.model);
  if (calls_ == nullptr || model == allowed_.end()) {
    std::vector<std::string> names;
    names.reserve(allowed_.size());
    for (const auto& [name, own] : allowed_) names.push_back(name);
    return InvalidArgument(
        "the function calls model '{}', which `calls` in its model.yaml does not name{}",
        CutText(call.model, 256),
        names.empty() ? "" : fmt::format("; it names: {}", fmt::join(names, ", ")));
  }
  InferRequest request;
  request.model = model->second;
  for (const auto& [name, placed] : call.inputs) {
    if (placed.dtype == DType::kBytes) {
      CHAIRLIFT_ASSIGN_OR_RETURN(Tensor texts, CopyTexts(name, placed, region));
      request.inputs.push_back({name, std::move(texts)});
      continue;
    }
    const size_t bytes = static_cast<size_t>(placed.shape.NumElements()) * DTypeSize(placed.dtype);
    Tensor tensor = Tensor::Allocate(placed.dtype, placed.shape);
    // Copied, because the worker may write there even now.
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
  const StatusOr<CalledModel> model = calls_->Find(request->model);
  if (!model.ok()) return Answer(call.call, model.status());
  const RequestId number =
      calls_->Begin(*model, *std::move(request), nullptr,
                    [self = shared_from_this(), id = call.call](
                        const StatusOr<InferResponse>& answer) { self->Answer(id, answer); });
  bool cancel = false;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = running_.find(call.call);
  if (found != running_.end()) {
    found->second = number;
  } else {
    cancel = true;  // if it was answered meanwhile, this has no effect
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
        outputs.push_back({output.name, {output.tensor.dtype(), output.tensor.shape(), bytes}});
        bytes += RoundedUp(BytesIn(output.tensor));
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(region, SharedRegion::Create(bytes));
      for (size_t i = 0; i < outputs.size(); ++i) {
        PutOutput(answer->outputs[i].tensor, region->data() + outputs[i].tensor.offset);
      }
      return absl::OkStatus();
    });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (running_.erase(call) == 0 || process_ == nullptr) return;  // the answer is no longer needed
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
