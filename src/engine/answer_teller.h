// Tells answers: each once, those of one client in the order of its requests, parts of an answer
// before the answer.
#ifndef CHAIRLIFT_ENGINE_ANSWER_TELLER_H_
#define CHAIRLIFT_ENGINE_ANSWER_TELLER_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "engine/request.h"

namespace chairlift {

// Thread-safe. Its lock is held for moments, never while a callback runs, and taken last: the other
// functions may be called under locks of the caller's, Tell() must not.
class AnswerTeller {
 public:
  // What has become ready to be told, for Tell(). Nothing of it is lost only if it gets there.
  class Ready {
   private:
    friend class AnswerTeller;
    struct Answer {
      InferCallback callback;
      StatusOr<InferResponse> value;
    };
    std::vector<Answer> answers_;
    std::vector<ClientId> clients_;  // whose first answers are there
    std::vector<std::shared_ptr<PartStream>> parts_;
  };

  // A request was accepted, after those of its client that were before.
  void Accept(Request& request);
  // Parts of its answer may have become ready.
  void SendParts(Request& request, Ready& ready);
  // It has ended. Takes what it needs of the request, which may go.
  void End(Request& request, StatusOr<InferResponse> value, Ready& ready);

  // Runs the callbacks. Where another thread is telling the same client or the same parts, that one
  // goes on with these.
  void Tell(Ready ready);

  // Until all accepted requests have been told and their callbacks have returned; false where that
  // takes longer than `limit`.
  bool WaitUntilAllAreTold(std::optional<Duration> limit);

 private:
  struct Client {
    std::deque<std::shared_ptr<AnswerSlot>> slots;  // in order of arrival
    bool telling = false;                           // some thread is at it
  };

  // Under the lock.
  void Conclude(Ending ending, Ready& ready);
  void TellOne(Ready::Answer answer);
  void TellClient(ClientId client);
  void TellParts(PartStream& stream);

  std::mutex mutex_;
  // All below, and what PartStream and AnswerSlot say, is guarded by mutex_.
  absl::flat_hash_map<ClientId, Client> clients_;
  int untold_ = 0;                // accepted requests whose callback has not returned
  std::condition_variable told_;  // untold_ became 0
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_ANSWER_TELLER_H_
