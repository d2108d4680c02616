// One line of the log a request, at level debug.
#ifndef CHAIRLIFT_SERVER_HTTP_ACCESS_LOG_H_
#define CHAIRLIFT_SERVER_HTTP_ACCESS_LOG_H_

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "server/http/request_parser.h"

namespace chairlift::http {

// What is noted of a request until its answer is out.
struct Access {
  static bool Wanted();  // by the log's level

  TimePoint begin;    // when its header had come
  std::string model;  // empty: it names none
  std::string id;     // likewise
  int status = 0;
  size_t bytes = 0;  // of the answer, head and all
};

// `end`: "" or why the answer is not whole.
void LogAccess(const RequestHead& request, const Access& access, const std::string& client,
               const char* end);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_ACCESS_LOG_H_
