// Answers everything except inference: metadata, health, configuration, statistics, repository.
#ifndef CHAIRLIFT_SERVER_HTTP_HANDLERS_H_
#define CHAIRLIFT_SERVER_HTTP_HANDLERS_H_

#include <string>
#include <string_view>

#include "server/http/router.h"
#include "server/protocol/service.h"

namespace chairlift::http {

struct Reply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  int retry_after_s = 1;   // for a 503
  std::string error = {};  // error text, if it is an error
};

Reply ErrorReply(int status, std::string_view message);
// The HTTP status for an error's kind is Triton's.
Reply ErrorReply(const protocol::Error& error);
Reply ErrorReply(const Status& status);

// kLoad and kUnload block until the model is loaded or unloaded; the others are quick. Not for
// kInfer and kMetrics.
Reply Handle(protocol::Service& service, const Route& route, std::string_view body);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_HANDLERS_H_
