// From method and request target to an endpoint. Pure: no engine, no sockets.
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
  // Of texts, in the formats of OpenAI's and of text-embeddings-inference's clients (text_codec.h):
  kEmbeddings,       // POST /v1/embeddings
  kEmbed,            // POST /embed
  kEmbedAll,         // POST /embed_all (vectors_codec.h)
  kEmbedSparse,      // POST /embed_sparse, which is refused
  kSimilarity,       // POST /similarity (vectors_codec.h)
  kRerank,           // POST /rerank
  kRerankDocuments,  // POST /v1/rerank, /v2/rerank
  kPredict,          // POST /predict (classify_codec.h)
  kTokenize,         // POST /tokenize (tokenize_codec.h)
  kDecode,           // POST /decode (likewise)
  kByModel,          // POST / and /invocations: one of those above, as the model and body are
  kCompletions,      // POST /v1/completions (completion_codec.h)
  kChatCompletions,  // POST /v1/chat/completions (likewise)
  kTextModels,       // GET  /v1/models
  kTextModel,        // GET  /v1/models/{model}
  kTextInfo,         // GET  /info
  kRepositoryIndex,  // POST /v2/repository/index
  kLoad,             // POST /v2/repository/models/{model}/load
  kUnload,           // POST /v2/repository/models/{model}/unload
  kMetrics,          // GET  /metrics
  kOverview,         // GET  /
  kOptions,          // OPTIONS of any of these, and of *
  // Of Triton's extensions that this server does not have (protocol/absent_extensions.h):
  kSharedMemoryStatus,      // GET  /v2/{system,cuda}sharedmemory[/region/{region}]/status
  kRegisterSharedMemory,    // POST /v2/{system,cuda}sharedmemory/region/{region}/register
  kUnregisterSharedMemory,  // POST /v2/{system,cuda}sharedmemory[/region/{region}]/unregister
  kTraceSettings,           // GET  /v2[/models/{model}]/trace/setting
  kChangeTraceSettings,     // POST likewise
  kLogSettings,             // GET  /v2/logging
  kChangeLogSettings,       // POST likewise
  kNone,
};

// Whether it changes the server, or shows what its repository holds: not for pages of other sites.
bool IsAdministrative(Endpoint endpoint);

enum class Port { kInference, kMetrics };

struct Route {
  Endpoint endpoint = Endpoint::kNone;
  std::string model;    // or the region of shared memory; percent-decoded
  std::string version;  // empty: not given

  // Where endpoint is kNone:
  int error_status = 0;         // 400, 404, 405 or 501
  std::string error;            // in words
  std::string_view allow = {};  // for 405 and kOptions: the methods that would do
};

// The paths of the HTTP port, as "GET /v2/models/{model}"; extensions that are absent, and
// metrics, are not among them.
std::vector<std::string> ListRoutes();

// HEAD is allowed where GET is. A query after '?' is ignored, and so are the scheme and authority
// of a target in absolute form: there is one site here.
Route FindRoute(std::string_view method, std::string_view target, Port port,
                const ServerLimits& limits);

// Whether its clients are OpenAI's, who read errors in that form.
bool IsOpenAiPath(std::string_view target);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_ROUTER_H_
