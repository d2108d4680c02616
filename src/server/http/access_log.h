// One log line per request, at level debug.
#ifndef CHAIRLIFT_SERVER_HTTP_ACCESS_LOG_H_
#define CHAIRLIFT_SERVER_HTTP_ACCESS_LOG_H_

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "server/http/request_parser.h"

namespace chairlift::http {

// Recorded for a request until its answer has been sent.
struct Access {
  static bool Wanted();  // by the log's level

  TimePoint begin;    // when its header had arrived
  std::string model;  // empty: none
  std::string id;     // empty: none
  int status = 0;
  size_t bytes = 0;  // of the answer, including its head
};

// `end`: "" or why the answer is incomplete.
void LogAccess(const RequestHead& request, const Access& access, const std::string& client,
               const char* end);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_ACCESS_LOG_H_
