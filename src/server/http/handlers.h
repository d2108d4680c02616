// Answers to everything but inference: metadata, health, configuration, statistics, repository.
#ifndef CHAIRLIFT_SERVER_HTTP_HANDLERS_H_
#define CHAIRLIFT_SERVER_HTTP_HANDLERS_H_

#include <string>
#include <string_view>

#include "chairlift/engine.h"
#include "server/http/router.h"

namespace chairlift::http {

struct Reply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
};

// The HTTP status for a failed call, after Triton's.
int HttpStatus(const Status& status);
Reply ErrorReply(int status, std::string_view message);
Reply ErrorReply(const Status& status);

// kLoad and kUnload block until the model is loaded or gone; the others are quick. `draining` makes
// the server not ready. Not for kInfer and kMetrics.
Reply Handle(Engine& engine, const Route& route, std::string_view body, bool draining);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_HANDLERS_H_
