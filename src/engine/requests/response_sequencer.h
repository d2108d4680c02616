// Delivers responses: each once, those of one client in the order of its requests, parts of an
// answer before the answer.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_SEQUENCER_H_
#define CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_SEQUENCER_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "engine/requests/reply.h"

namespace chairlift {

// Thread-safe. Its lock is for clients that keep order and for parts; other requests do not take
// it. It is held for moments, never while a callback runs, and taken last: the other functions may
// be called under the caller's locks, Deliver() must not.
class ResponseSequencer {
 public:
  // What is ready for Deliver(). It must get there, or responses are lost.
  class Ready {
   public:
    bool empty() const { return answers_.empty() && clients_.empty() && parts_.empty(); }

   private:
    friend class ResponseSequencer;
    struct Answer {
      Answer(InferCallback&& to, StatusOr<InferResponse>&& answer)
          : callback(std::move(to)), value(std::move(answer)) {}
      InferCallback callback;
      StatusOr<InferResponse> value;
    };
    std::vector<Answer> answers_;
    std::vector<ClientId> clients_;  // whose first responses are there
    std::vector<std::shared_ptr<PartStream>> parts_;
  };

  // A request was accepted, after the earlier ones of its client.
  void Accept(Reply& reply);
  // Parts of an answer are complete. Those of a request that has ended are dropped.
  void SendParts(const std::shared_ptr<PartStream>& stream, std::vector<ReadyPart> parts,
                 Ready& ready);
  // The request has ended. Takes what it needs of the reply.
  void End(Reply& reply, StatusOr<InferResponse>&& value, Ready& ready);

  // Runs the callbacks. Where another thread is delivering to the same client, or the same parts,
  // that one goes on with these.
  void Deliver(Ready ready);

  // Until all accepted requests have been answered and their callbacks have returned; false where
  // that takes longer than `limit`.
  bool WaitUntilAllAreAnswered(std::optional<Duration> limit);

 private:
  struct Client {
    std::deque<std::shared_ptr<ResponseSlot>> slots;  // in order of arrival
    bool delivering = false;                          // some thread is at it
  };

  // Under the lock.
  void Conclude(Ending ending, Ready& ready);
  void DeliverOne(Ready::Answer&& answer);
  void DeliverToClient(ClientId client);
  void DeliverParts(PartStream& stream);

  std::mutex mutex_;
  // What PartStream and ResponseSlot say is guarded by mutex_, too.
  absl::flat_hash_map<ClientId, Client> clients_;  // guarded by mutex_
  // Accepted requests whose callback has not returned; becomes 0 under mutex_.
  std::atomic<int> unanswered_{0};
  std::condition_variable answered_;  // unanswered_ became 0
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_SEQUENCER_H_
