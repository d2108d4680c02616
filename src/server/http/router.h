// From method and request target to what is asked for. Pure: no engine, no sockets.
#ifndef CHAIRLIFT_SERVER_HTTP_ROUTER_H_
#define CHAIRLIFT_SERVER_HTTP_ROUTER_H_

#include <string>
#include <string_view>

#include "server/limits.h"

namespace chairlift::http {

enum class Endpoint {
  kServerMetadata,   // GET  /v2
  kLive,             // GET  /v2/health/live
  kReady,            // GET  /v2/health/ready
  kAllStatistics,    // GET  /v2/models/stats
  kModelMetadata,    // GET  /v2/models/{model}[/versions/{version}]
  kModelReady,       // GET  .../ready
  kModelConfig,      // GET  .../config
  kModelStatistics,  // GET  .../stats
  kInfer,            // POST .../infer
  kGenerate,         // POST .../generate
  kGenerateStream,   // POST .../generate_stream
  kRepositoryIndex,  // POST /v2/repository/index
  kLoad,             // POST /v2/repository/models/{model}/load
  kUnload,           // POST /v2/repository/models/{model}/unload
  kMetrics,          // GET  /metrics, on the metrics port alone
  kNone,
};

enum class Port { kInference, kMetrics };

struct Route {
  Endpoint endpoint = Endpoint::kNone;
  std::string model;    // percent-decoded
  std::string version;  // empty: not given

  // Where endpoint is kNone:
  int error_status = 0;         // 400, 404, 405 or 501
  std::string error;            // in words
  std::string_view allow = {};  // for 405: the methods that would do
};

// HEAD is allowed where GET is. A query after '?' is ignored.
Route FindRoute(std::string_view method, std::string_view target, Port port,
                const ServerLimits& limits);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_ROUTER_H_
