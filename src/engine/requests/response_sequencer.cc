#include "engine/requests/response_sequencer.h"

#include <string>
#include <utility>

#include "base/memory_reserve.h"

namespace chairlift {

void ResponseSequencer::Accept(Reply& reply) {
  ++unanswered_;
  if (reply.client == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  reply.slot = std::make_shared<ResponseSlot>();
  reply.slot->callback = std::move(reply.callback);
  clients_[reply.client].slots.push_back(reply.slot);
}

void ResponseSequencer::SendParts(const std::shared_ptr<PartStream>& stream,
                                  std::vector<ReadyPart> parts, Ready& ready) {
  if (parts.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stream->ended) return;
  for (ReadyPart& part : parts) stream->ready.push_back(std::move(part));
  if (stream->delivering) return;
  stream->delivering = true;
  ready.parts_.push_back(stream);
}

void ResponseSequencer::End(Reply& reply, StatusOr<InferResponse>&& value, Ready& ready) {
  if (reply.slot == nullptr && reply.parts == nullptr) {
    ready.answers_.emplace_back(std::move(reply.callback), std::move(value));
    return;
  }
  Ending ending{std::move(reply.callback), std::move(reply.slot), reply.client, std::move(value)};
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reply.parts != nullptr) reply.parts->ended = true;
  if (reply.parts != nullptr && reply.parts->delivering) {
    reply.parts->ending = std::move(ending);
  } else {
    Conclude(std::move(ending), ready);
  }
}

void ResponseSequencer::Conclude(Ending ending, Ready& ready) {
  if (ending.slot == nullptr) {
    ready.answers_.emplace_back(std::move(ending.callback), std::move(ending.value));
    return;
  }
  ending.slot->answer = std::move(ending.value);
  Client& client = clients_.at(ending.client);
  if (!client.delivering && client.slots.front()->answer) {
    client.delivering = true;
    ready.clients_.push_back(ending.client);
  }
}

void ResponseSequencer::Deliver(Ready ready) {
  for (const std::shared_ptr<PartStream>& stream : ready.parts_) DeliverParts(*stream);
  for (Ready::Answer& answer : ready.answers_) DeliverOne(std::move(answer));
  for (const ClientId client : ready.clients_) DeliverToClient(client);
}

void ResponseSequencer::DeliverOne(Ready::Answer&& answer) {
  {
    const MemoryReserve::Suspend suspend;
    answer.callback(std::move(answer.value));
    answer.callback = nullptr;
  }
  int left = unanswered_;
  while (left > 1 && !unanswered_.compare_exchange_weak(left, left - 1)) {
  }
  if (left > 1) return;
  // Under the lock, because a waiting thread may destroy this once it is 0.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--unanswered_ == 0) answered_.notify_all();
}

void ResponseSequencer::DeliverToClient(ClientId id) {
  while (true) {
    std::shared_ptr<ResponseSlot> slot;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = clients_.find(id);
      Client& client = found->second;
      if (client.slots.empty() || !client.slots.front()->answer) {
        client.delivering = false;
        if (client.slots.empty()) clients_.erase(found);
        return;
      }
      slot = std::move(client.slots.front());
      client.slots.pop_front();
    }
    DeliverOne({std::move(slot->callback), *std::move(slot->answer)});
  }
}

void ResponseSequencer::DeliverParts(PartStream& stream) {
  std::vector<ReadyPart> ready;
  while (true) {
    Ready after;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ready = std::exchange(stream.ready, {});
      if (ready.empty()) {
        stream.delivering = false;
        if (stream.ending) Conclude(*std::move(stream.ending), after);
      }
    }
    if (ready.empty()) return Deliver(std::move(after));
    const std::vector<InferPart> parts = Grouped(ready, stream.names);
    const MemoryReserve::Suspend suspend;
    stream.on_parts(parts);
  }
}

bool ResponseSequencer::WaitUntilAllAreAnswered(std::optional<Duration> limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto all_answered = [this] { return unanswered_ == 0; };
  if (limit) return answered_.wait_for(lock, *limit, all_answered);
  answered_.wait(lock, all_answered);
  return true;
}

}  // namespace chairlift
