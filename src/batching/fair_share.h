// Decides which clients may still join a queue that fills up: clients that received less machine
// time may join longer queues.
//
// A queue is bounded by how long a request would wait in it (queue_time.h). With this bound alone,
// the client that sends most often would take the whole queue. So the work recently given to each
// client is counted. A client with at most the average may join up to the bound. One with r times
// the average may join up to the bound divided by r, but always up to half of it. A single client
// has the average, and so the whole queue. If several clients want more than there is, they end up
// with equal shares; a client that wants little gets all of it.
#ifndef CHAIRLIFT_BATCHING_FAIR_SHARE_H_
#define CHAIRLIFT_BATCHING_FAIR_SHARE_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"

namespace chairlift {

// A state machine that takes the time as an argument. Not thread-safe.
class FairShare {
 public:
  // Groups (addresses) get equal shares, and so do the members (connections) of each group.
  struct Client {
    uint64_t group = 0;
    uint64_t member = 0;
  };

  // The longest expected wait with which the client's next request may join a queue bounded by
  // `limit`. `wait` is the expected wait of a new request now. While it is below Free(limit), all
  // clients may join and nothing is counted.
  Duration Allowed(const Client& client, Duration wait, Duration limit, TimePoint now);
  static Duration Free(Duration limit) { return limit / 8; }
  // A request of the client has joined, with `work` of work.
  void Charge(const Client& client, Duration work, TimePoint now);

  // Number of clients that are remembered, at most kMostClients.
  size_t size() const { return members_; }

  // Work counts fully for this long, and then fades out over the same time.
  static constexpr Duration kPeriod = std::chrono::seconds(10);
  // Further clients are admitted up to the bound, whatever they received.
  static constexpr size_t kMostClients = 4096;

 private:
  struct Given {
    double before = 0;  // in the last period, ns
    double now = 0;     // in the current period
    bool seen_before = false;
    bool seen = false;
  };
  struct Group {
    Given all;
    absl::flat_hash_map<uint64_t, Given> members;
  };

  // Starts new periods as needed.
  void Roll(TimePoint now);
  double Recent(const Given& given) const { return given.before * fading_ + given.now; }
  // Null if the table is full.
  Given* Find(const Client& client);

  absl::flat_hash_map<uint64_t, Group> groups_;
  Given all_;
  size_t members_ = 0;
  TimePoint start_{};         // of the period
  double fading_ = 0;         // remaining weight of the previous period
  TimePoint counts_until_{};  // not set: no client has asked while the queue was longer than Free()
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_FAIR_SHARE_H_
