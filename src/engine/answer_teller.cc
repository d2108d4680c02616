#include "engine/answer_teller.h"

#include <string>
#include <utility>

namespace chairlift {

void AnswerTeller::Accept(Request& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++untold_;
  if (request.client == 0) return;
  request.slot = std::make_shared<AnswerSlot>();
  request.slot->callback = std::move(request.callback);
  clients_[request.client].slots.push_back(request.slot);
}

void AnswerTeller::SendParts(Request& request, Ready& ready) {
  if (request.parts == nullptr) return;
  std::vector<ReadyPart> parts = request.cells->TakeParts();
  if (parts.empty()) return;
  PartStream& stream = *request.parts;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (ReadyPart& part : parts) stream.ready.push_back(std::move(part));
  if (stream.telling) return;
  stream.telling = true;
  ready.parts_.push_back(request.parts);
}

void AnswerTeller::End(Request& request, StatusOr<InferResponse> value, Ready& ready) {
  Ending ending{std::move(request.callback), std::move(request.slot), request.client,
                std::move(value)};
  const std::lock_guard<std::mutex> lock(mutex_);
  if (request.parts != nullptr && request.parts->telling) {
    request.parts->ending = std::move(ending);
  } else {
    Conclude(std::move(ending), ready);
  }
}

void AnswerTeller::Conclude(Ending ending, Ready& ready) {
  if (ending.slot == nullptr) {
    ready.answers_.push_back({std::move(ending.callback), std::move(ending.value)});
    return;
  }
  ending.slot->answer = std::move(ending.value);
  Client& client = clients_.at(ending.client);
  if (!client.telling && client.slots.front()->answer) {
    client.telling = true;
    ready.clients_.push_back(ending.client);
  }
}

void AnswerTeller::Tell(Ready ready) {
  for (const std::shared_ptr<PartStream>& stream : ready.parts_) TellParts(*stream);
  for (Ready::Answer& answer : ready.answers_) TellOne(std::move(answer));
  for (const ClientId client : ready.clients_) TellClient(client);
}

void AnswerTeller::TellOne(Ready::Answer answer) {
  answer.callback(std::move(answer.value));
  answer.callback = nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--untold_ == 0) told_.notify_all();
}

void AnswerTeller::TellClient(ClientId id) {
  while (true) {
    std::shared_ptr<AnswerSlot> slot;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = clients_.find(id);
      Client& client = found->second;
      if (client.slots.empty() || !client.slots.front()->answer) {
        client.telling = false;
        if (client.slots.empty()) clients_.erase(found);
        return;
      }
      slot = std::move(client.slots.front());
      client.slots.pop_front();
    }
    TellOne({std::move(slot->callback), *std::move(slot->answer)});
  }
}

void AnswerTeller::TellParts(PartStream& stream) {
  std::vector<ReadyPart> ready;
  while (true) {
    Ready after;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ready = std::exchange(stream.ready, {});
      if (ready.empty()) {
        stream.telling = false;
        if (stream.ending) Conclude(*std::move(stream.ending), after);
      }
    }
    if (ready.empty()) return Tell(std::move(after));
    stream.on_parts(Grouped(ready, [&](int output) -> const std::string& {
      return stream.model->signature().outputs[static_cast<size_t>(output)].name;
    }));
  }
}

bool AnswerTeller::WaitUntilAllAreTold(std::optional<Duration> limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto all_told = [this] { return untold_ == 0; };
  if (limit) return told_.wait_for(lock, *limit, all_told);
  told_.wait(lock, all_told);
  return true;
}

}  // namespace chairlift
