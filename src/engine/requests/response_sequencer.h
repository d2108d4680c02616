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

// Thread-safe. Its lock is for clients with ordered responses and for parts; other requests do not
// take it. It is held briefly, never while a callback runs, and taken last: the other functions may
// be called under the caller's locks, Deliver() must not.
class ResponseSequencer {
 public:
  // Results to pass to Deliver(). If they are not, responses are lost.
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
    std::vector<ClientId> clients_;  // those whose first response has arrived
    std::vector<std::shared_ptr<PartStream>> parts_;
  };

  // A request was accepted, after the earlier ones of its client.
  void Accept(Reply& reply);
  // Parts of an answer are complete. Those of a request that has ended are dropped.
  void SendParts(const std::shared_ptr<PartStream>& stream, std::vector<ReadyPart> parts,
                 Ready& ready);
  // The request has ended. Moves what it needs from the reply.
  void End(Reply& reply, StatusOr<InferResponse>&& value, Ready& ready);

  // Runs the callbacks. If another thread is delivering to the same client, or the same parts, that
  // thread continues with these.
  void Deliver(Ready ready);

  // Waits until all accepted requests have been answered and their callbacks have returned; false
  // after `limit`.
  bool WaitUntilAllAreAnswered(std::optional<Duration> limit);

 private:
  struct Client {
    std::deque<std::shared_ptr<ResponseSlot>> slots;  // in order of arrival
    bool delivering = false;                          // a thread is delivering them
  };

  // Under the lock.
  void Conclude(Ending ending, Ready& ready);
  void DeliverOne(Ready::Answer&& answer);
  void DeliverToClient(ClientId client);
  void DeliverParts(PartStream& stream);

  std::mutex mutex_;
  // The contents of PartStream and ResponseSlot are guarded by mutex_, too.
  absl::flat_hash_map<ClientId, Client> clients_;  // guarded by mutex_
  // Accepted requests whose callback has not returned; reaches 0 only under mutex_.
  std::atomic<int> unanswered_{0};
  std::condition_variable answered_;  // unanswered_ became 0
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_RESPONSE_SEQUENCER_H_
