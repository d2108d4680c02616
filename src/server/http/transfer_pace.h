// The minimum rate at which a client must send a body and read an answer.
#ifndef CHAIRLIFT_SERVER_HTTP_TRANSFER_PACE_H_
#define CHAIRLIFT_SERVER_HTTP_TRANSFER_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace chairlift::http {

// A transfer has `silence` from its start. Each byte extends its deadline by the time that the
// minimum rate allows for it, but never to more than `silence` from now. So neither a longer pause
// nor a trickle after a burst keeps the connection.
struct TransferPace {
  std::chrono::milliseconds silence;
  size_t bytes_per_second;

  TimePoint Start(TimePoint now) const { return now + silence; }
  TimePoint Moved(TimePoint deadline, size_t bytes, TimePoint now) const {
    constexpr double kDay = 86'400;  // larger values are bounded by the silence
    const double seconds = static_cast<double>(bytes) / static_cast<double>(bytes_per_second);
    const std::chrono::duration<double> gained(std::min(seconds, kDay));
    return std::min(deadline + std::chrono::duration_cast<Duration>(gained), now + silence);
  }
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TRANSFER_PACE_H_
