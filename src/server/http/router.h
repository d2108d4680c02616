// Maps method and request target to an endpoint. Pure: no engine, no sockets.
#ifndef CHAIRLIFT_SERVER_HTTP_ROUTER_H_
#define CHAIRLIFT_SERVER_HTTP_ROUTER_H_

#include <string>
#include <string_view>
#include <vector>

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
  // For text inputs, in the formats of OpenAI's and text-embeddings-inference's clients
  // (text_codec.h):
  kEmbeddings,       // POST /v1/embeddings
  kEmbed,            // POST /embed
  kEmbedAll,         // POST /embed_all (vectors_codec.h)
  kEmbedSparse,      // POST /embed_sparse: refused
  kSimilarity,       // POST /similarity (vectors_codec.h)
  kRerank,           // POST /rerank
  kRerankDocuments,  // POST /v1/rerank, /v2/rerank
  kPredict,          // POST /predict (classify_codec.h)
  kTokenize,         // POST /tokenize (tokenize_codec.h)
  kDecode,           // POST /decode (tokenize_codec.h)
  kByModel,          // POST / and /invocations: one of those above, depending on the model and body
  kCompletions,      // POST /v1/completions (completion_codec.h)
  kChatCompletions,  // POST /v1/chat/completions (completion_codec.h)
  kTextModels,       // GET  /v1/models
  kTextModel,        // GET  /v1/models/{model}
  kTextInfo,         // GET  /info
  kRepositoryIndex,  // POST /v2/repository/index
  kLoad,             // POST /v2/repository/models/{model}/load
  kUnload,           // POST /v2/repository/models/{model}/unload
  kMetrics,          // GET  /metrics
  kOverview,         // GET  /
  kOptions,          // OPTIONS for any of these, and for *
  // Triton's extensions that this server does not support (protocol/absent_extensions.h):
  kSharedMemoryStatus,      // GET  /v2/{system,cuda}sharedmemory[/region/{region}]/status
  kRegisterSharedMemory,    // POST /v2/{system,cuda}sharedmemory/region/{region}/register
  kUnregisterSharedMemory,  // POST /v2/{system,cuda}sharedmemory[/region/{region}]/unregister
  kTraceSettings,           // GET  /v2[/models/{model}]/trace/setting
  kChangeTraceSettings,     // POST /v2[/models/{model}]/trace/setting
  kLogSettings,             // GET  /v2/logging
  kChangeLogSettings,       // POST /v2/logging
  kNone,
};

// Whether it changes the server or shows the contents of its repository: not allowed for pages of
// other sites.
bool IsAdministrative(Endpoint endpoint);

enum class Port { kInference, kMetrics };

struct Route {
  Endpoint endpoint = Endpoint::kNone;
  std::string model;    // or the region of shared memory; percent-decoded
  std::string version;  // empty: not given

  // If endpoint is kNone:
  int error_status = 0;         // 400, 404, 405 or 501
  std::string error;            // error text
  std::string_view allow = {};  // for 405 and kOptions: the allowed methods
};

// The paths of the HTTP port, as "GET /v2/models/{model}", without unsupported extensions and
// metrics.
std::vector<std::string> ListRoutes();

// HEAD is allowed where GET is. A query after '?' is ignored, and so are the scheme and authority
// of a target in absolute form: there is only one site.
Route FindRoute(std::string_view method, std::string_view target, Port port,
                const ServerLimits& limits);

// Whether its clients are OpenAI's, which expect errors in that format.
bool IsOpenAiPath(std::string_view target);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_ROUTER_H_
