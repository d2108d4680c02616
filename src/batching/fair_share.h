// Who may still join a queue that fills up: clients that have had less of the machine go further.
//
// A queue is bounded by how long a request would wait in it (queue_time.h). If that were all, the
// client that asks most often would have it to itself. So what each client was given of late is
// counted. One that has had the average or less may join up to the bound; one that has had r times
// the average, up to the bound divided by r, but half of it in any case. A client that is alone has
// the average, and all of the queue. Where several want more than there is, all end up level; a
// client that wants little gets what it asks for.
#ifndef CHAIRLIFT_BATCHING_FAIR_SHARE_H_
#define CHAIRLIFT_BATCHING_FAIR_SHARE_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"

namespace chairlift {

// A state machine in the time that it is told. Not thread-safe.
class FairShare {
 public:
  // Groups (addresses) have equal shares, and so have the members (connections) of each.
  struct Client {
    uint64_t group = 0;
    uint64_t member = 0;
  };

  // A client asks: the longest wait with which it may join, of a queue bounded by `limit`; a new
  // request would wait for `wait` now. Where that is less than Free(limit), all may join, and
  // nobody is counted.
  Duration Allowed(const Client& client, Duration wait, Duration limit, TimePoint now);
  static Duration Free(Duration limit) { return limit / 8; }
  // A request of the client has joined, with work that takes that long.
  void Charge(const Client& client, Duration work, TimePoint now);

  // Clients that are remembered, at most kMostClients.
  size_t size() const { return members_; }

  // What was given counts for this long, and ever less for as long again.
  static constexpr Duration kPeriod = std::chrono::seconds(10);
  // Those that ask beside them are admitted up to the bound, whatever they had.
  static constexpr size_t kMostClients = 4096;

 private:
  struct Given {
    double before = 0;  // in the last period, ns
    double now = 0;     // in this one
    bool seen_before = false;
    bool seen = false;
  };
  struct Group {
    Given all;
    absl::flat_hash_map<uint64_t, Given> members;
  };

  // Begins periods.
  void Roll(TimePoint now);
  double Recent(const Given& given) const { return given.before * fading_ + given.now; }
  // Null where there is no more room.
  Given* Find(const Client& client);

  absl::flat_hash_map<uint64_t, Group> groups_;
  Given all_;
  size_t members_ = 0;
  TimePoint start_{};         // of the period
  double fading_ = 0;         // what is left of the last period's
  TimePoint counts_until_{};  // absent: nobody has asked while the queue was longer than Free()
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_FAIR_SHARE_H_
