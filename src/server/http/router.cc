// The table of paths, and matching targets against it.
#include "server/http/router.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/closest.h"
#include "base/excerpt.h"

namespace chairlift::http {
namespace {

constexpr size_t kShownPath = 128;  // bytes of an unknown path in its error

struct Entry {
  std::string_view method;
  std::string_view pattern;  // "*" matches a model, "#" a version
  Endpoint endpoint;
  Port port = Port::kInference;
};

// First match wins: fixed words before names.
constexpr std::array kTable = {
    Entry{"POST", "v2/models/*/infer", Endpoint::kInfer},
    Entry{"POST", "v2/models/*/versions/#/infer", Endpoint::kInfer},
    Entry{"POST", "v2/models/*/generate", Endpoint::kGenerate},
    Entry{"POST", "v2/models/*/versions/#/generate", Endpoint::kGenerate},
    Entry{"POST", "v2/models/*/generate_stream", Endpoint::kGenerateStream},
    Entry{"POST", "v2/models/*/versions/#/generate_stream", Endpoint::kGenerateStream},
    Entry{"POST", "v1/embeddings", Endpoint::kEmbeddings},
    Entry{"POST", "v1/completions", Endpoint::kCompletions},
    Entry{"POST", "v1/chat/completions", Endpoint::kChatCompletions},
    Entry{"POST", "embed", Endpoint::kEmbed},
    Entry{"POST", "rerank", Endpoint::kRerank},
    Entry{"POST", "v1/rerank", Endpoint::kRerankDocuments},
    Entry{"GET", "v1/models", Endpoint::kTextModels},
    Entry{"GET", "v1/models/*", Endpoint::kTextModel},
    // Paths of text-embeddings-inference, vLLM, Cohere and SageMaker.
    Entry{"POST", "v2/rerank", Endpoint::kRerankDocuments},
    Entry{"POST", "embeddings", Endpoint::kEmbeddings},
    Entry{"POST", "embed_all", Endpoint::kEmbedAll},
    Entry{"POST", "embed_sparse", Endpoint::kEmbedSparse},
    Entry{"POST", "similarity", Endpoint::kSimilarity},
    Entry{"POST", "predict", Endpoint::kPredict},
    Entry{"POST", "tokenize", Endpoint::kTokenize},
    Entry{"POST", "decode", Endpoint::kDecode},
    Entry{"POST", "", Endpoint::kByModel},
    Entry{"POST", "invocations", Endpoint::kByModel},
    Entry{"GET", "info", Endpoint::kTextInfo},
    Entry{"GET", "health", Endpoint::kReady},
    Entry{"GET", "healthz", Endpoint::kReady},
    Entry{"GET", "ping", Endpoint::kReady},
    Entry{"GET", "version", Endpoint::kServerMetadata},
    Entry{"GET", "v2/health/live", Endpoint::kLive},
    Entry{"GET", "v2/health/ready", Endpoint::kReady},
    Entry{"GET", "v2", Endpoint::kServerMetadata},
    Entry{"GET", "v2/models/stats", Endpoint::kAllStatistics},
    Entry{"GET", "v2/models/*", Endpoint::kModelMetadata},
    Entry{"GET", "v2/models/*/ready", Endpoint::kModelReady},
    Entry{"GET", "v2/models/*/config", Endpoint::kModelConfig},
    Entry{"GET", "v2/models/*/stats", Endpoint::kModelStatistics},
    Entry{"GET", "v2/models/*/versions/#", Endpoint::kModelMetadata},
    Entry{"GET", "v2/models/*/versions/#/ready", Endpoint::kModelReady},
    Entry{"GET", "v2/models/*/versions/#/config", Endpoint::kModelConfig},
    Entry{"GET", "v2/models/*/versions/#/stats", Endpoint::kModelStatistics},
    Entry{"POST", "v2/repository/index", Endpoint::kRepositoryIndex},
    Entry{"POST", "v2/repository/models/*/load", Endpoint::kLoad},
    Entry{"POST", "v2/repository/models/*/unload", Endpoint::kUnload},
    Entry{"GET", "v2/systemsharedmemory/status", Endpoint::kSharedMemoryStatus},
    Entry{"GET", "v2/systemsharedmemory/region/*/status", Endpoint::kSharedMemoryStatus},
    Entry{"POST", "v2/systemsharedmemory/region/*/register", Endpoint::kRegisterSharedMemory},
    Entry{"POST", "v2/systemsharedmemory/unregister", Endpoint::kUnregisterSharedMemory},
    Entry{"POST", "v2/systemsharedmemory/region/*/unregister", Endpoint::kUnregisterSharedMemory},
    Entry{"GET", "v2/cudasharedmemory/status", Endpoint::kSharedMemoryStatus},
    Entry{"GET", "v2/cudasharedmemory/region/*/status", Endpoint::kSharedMemoryStatus},
    Entry{"POST", "v2/cudasharedmemory/region/*/register", Endpoint::kRegisterSharedMemory},
    Entry{"POST", "v2/cudasharedmemory/unregister", Endpoint::kUnregisterSharedMemory},
    Entry{"POST", "v2/cudasharedmemory/region/*/unregister", Endpoint::kUnregisterSharedMemory},
    Entry{"GET", "v2/trace/setting", Endpoint::kTraceSettings},
    Entry{"POST", "v2/trace/setting", Endpoint::kChangeTraceSettings},
    Entry{"GET", "v2/models/*/trace/setting", Endpoint::kTraceSettings},
    Entry{"POST", "v2/models/*/trace/setting", Endpoint::kChangeTraceSettings},
    Entry{"GET", "v2/logging", Endpoint::kLogSettings},
    Entry{"POST", "v2/logging", Endpoint::kChangeLogSettings},
    Entry{"GET", "", Endpoint::kOverview},
    Entry{"GET", "metrics", Endpoint::kMetrics},
    Entry{"GET", "metrics", Endpoint::kMetrics, Port::kMetrics},
};

Route Fail(int status, std::string message) {
  Route route;
  route.error_status = status;
  route.error = std::move(message);
  return route;
}

// Removes the next segment from the front.
std::string_view NextSegment(std::string_view* path) {
  const size_t slash = path->find('/');
  const std::string_view segment = path->substr(0, slash);
  path->remove_prefix(slash == std::string_view::npos ? path->size() : slash + 1);
  return segment;
}

bool Matches(std::string_view pattern, std::string_view path, std::string_view* model,
             std::string_view* version) {
  while (!pattern.empty() && !path.empty()) {
    const std::string_view want = NextSegment(&pattern);
    const std::string_view have = NextSegment(&path);
    if (want == "*") {
      if (have.empty()) return false;
      *model = have;
    } else if (want == "#") {
      if (have.empty()) return false;
      *version = have;
    } else if (want != have) {
      return false;
    }
  }
  return pattern.empty() && path.empty();
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// `target` without scheme and authority, if it has them; "/" if nothing follows them.
std::string_view WithoutSite(std::string_view target) {
  size_t scheme = 0;
  for (const std::string_view name : {"http://", "https://"}) {
    const bool starts = target.size() >= name.size() &&
                        std::equal(name.begin(), name.end(), target.begin(),
                                   [](char a, char b) { return a == absl::ascii_tolower(b); });
    if (starts) scheme = name.size();
  }
  if (scheme == 0) return target;
  const size_t path = target.find_first_of("/?", scheme);
  if (path == scheme) return {};  // no authority
  if (path == std::string_view::npos) return "/";
  return target[path] == '?' ? "/" : target.substr(path);
}

// For the field `Allow`, and as text.
struct Allowed {
  bool get = false;
  bool post = false;

  bool any() const { return get || post; }
  std::string_view Field() const {
    if (get && post) return "GET, HEAD, POST, OPTIONS";
    return get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  }
  std::string_view Words() const { return get && post ? "GET or POST" : get ? "GET" : "POST"; }
};

Route Options(Allowed allowed) {
  Route route;
  route.endpoint = Endpoint::kOptions;
  route.allow = allowed.Field();
  return route;
}

std::optional<std::string> PercentDecoded(std::string_view text) {
  if (text.find('%') == std::string_view::npos) return std::string(text);
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return decoded;
}

std::string_view LastSegment(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// Whether each fixed word of the pattern equals, or is close to, that of the path.
bool IsNear(std::string_view path, std::string_view pattern) {
  while (!pattern.empty() && !path.empty()) {
    const std::string want(NextSegment(&pattern));
    const std::string_view have = NextSegment(&path);
    if (want != "*" && want != "#" && want != have && !Closest(have, std::span(&want, 1))) {
      return false;
    }
  }
  return pattern.empty() && path.empty();
}

// "GET /v2/models/{model}"
std::string Shown(const Entry& entry) {
  std::string shown(entry.method);
  shown += ' ';
  std::string_view pattern = entry.pattern;
  do {
    const std::string_view segment = NextSegment(&pattern);
    shown.append("/").append(segment == "*" ? "{model}" : segment == "#" ? "{version}" : segment);
  } while (!pattern.empty());
  return shown;
}

// Paths of other servers that have another name here, or do not exist.
struct OtherPath {
  std::string_view path, instead;
};
constexpr std::array kOtherPaths = {
    OtherPath{"v1/responses", "chats are POST /v1/chat/completions"},
    OtherPath{"v1/messages", "chats are POST /v1/chat/completions"},
    OtherPath{"v1/score", "scores of pairs are POST /v1/rerank"},
    OtherPath{"score", "scores of pairs are POST /v1/rerank"},
    OtherPath{"v2/models", "POST /v2/repository/index lists the models"},
    OtherPath{"detokenize", "token ids become text by POST /decode"},
    OtherPath{"api/generate", "text is generated by POST /v1/completions"},
    OtherPath{"api/chat", "chats are POST /v1/chat/completions"},
    OtherPath{"api/embeddings", "text is embedded by POST /v1/embeddings"},
    OtherPath{"api/embed", "text is embedded by POST /v1/embeddings"},
    OtherPath{"v1/infer", "requests are POST /v2/models/{model}/infer"},
    OtherPath{"infer", "requests are POST /v2/models/{model}/infer"},
    OtherPath{"docs", "docs/reference/http.md describes the paths"},
    OtherPath{"openapi.json", "docs/reference/http.md describes the paths"},
};

// ": '/path'"; empty if it has unusual characters.
std::string QuotedPath(std::string_view path) {
  const bool plain = std::all_of(path.begin(), path.end(), absl::ascii_isgraph);
  return plain ? fmt::format(": '{}'", Shortened(path, kShownPath)) : "";
}

// "; did you mean GET /v1/models?": suggestions for an unknown path. If nothing is close, ";".
std::string NearPaths(std::string_view path) {
  for (const OtherPath& other : kOtherPaths) {
    if (other.path == path) return fmt::format("; {};", other.instead);
  }
  // KServe's first protocol, TensorFlow Serving, TorchServe.
  const bool predicts = path.ends_with(":predict") || path.starts_with("predictions/") ||
                        (path.starts_with("v2/models/") && path.ends_with("/predict"));
  if (predicts) {
    return "; requests are POST /v2/models/{model}/infer, or …/generate with plain JSON;";
  }
  std::vector<std::string> near, ends_alike;
  const std::string tail = fmt::format("/{}", path);
  for (const Entry& entry : kTable) {
    if (entry.port != Port::kInference || entry.pattern.empty()) continue;
    if (entry.pattern.ends_with(tail)) return fmt::format("; did you mean {}?", Shown(entry));
    if (near.empty() && IsNear(path, entry.pattern)) near.push_back(Shown(entry));
    // Paths with a version are longer forms of the same.
    if (LastSegment(entry.pattern) == LastSegment(path) &&
        entry.pattern.find('#') == std::string_view::npos && ends_alike.size() < 3) {
      ends_alike.push_back(Shown(entry));
    }
  }
  if (!near.empty()) return fmt::format("; did you mean {}?", near[0]);
  if (!ends_alike.empty()) return fmt::format("; did you mean {}?", fmt::join(ends_alike, ", or "));
  return ";";
}

bool KnownMethod(std::string_view method) {
  constexpr std::array<std::string_view, 9> kMethods = {
      "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};
  return std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
}

}  // namespace

bool IsOpenAiPath(std::string_view target) { return WithoutSite(target).starts_with("/v1/"); }

Route FindRoute(std::string_view method, std::string_view target, Port port,
                const ServerLimits& limits) {
  if (!KnownMethod(method)) {
    return Fail(501, fmt::format("method {} is not implemented", CutText(method, 32)));
  }
  const bool options = method == "OPTIONS";
  if (options && target == "*") return Options({.get = true, .post = port == Port::kInference});
  std::string_view path = WithoutSite(target);
  path = path.substr(0, path.find('?'));
  if (path.empty() || path.front() != '/') {
    return Fail(400, "the request target must be a path that starts with '/', or an http URL");
  }
  path.remove_prefix(1);
  if (path.ends_with('/')) path.remove_suffix(1);

  const std::string_view as = method == "HEAD" ? "GET" : method;
  Allowed allowed;
  for (const Entry& entry : kTable) {
    std::string_view model;
    std::string_view version;
    if (entry.port != port || !Matches(entry.pattern, path, &model, &version)) continue;
    if (entry.endpoint == Endpoint::kTextModel && model.ends_with(":predict")) continue;
    if (entry.method != as) {
      (entry.method == "GET" ? allowed.get : allowed.post) = true;
      continue;
    }
    std::optional<std::string> decoded = PercentDecoded(model);
    if (!decoded.has_value()) return Fail(400, "the model name has a broken percent escape");
    if (decoded->size() > limits.max_name_bytes) {
      return Fail(400, fmt::format("the model name is {} bytes long; the limit is {}",
                                   decoded->size(), limits.max_name_bytes));
    }
    const bool numeric =
        std::all_of(version.begin(), version.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!numeric || version.size() > 18) {
      return Fail(400, fmt::format("model version '{}' is not a whole number; leave /versions/{} "
                                   "out for the latest",
                                   CutText(version, 32), CutText(version, 32)));
    }
    Route route;
    route.endpoint = entry.endpoint;
    route.model = *std::move(decoded);
    route.version = std::string(version);
    return route;
  }
  if (allowed.any() && options) return Options(allowed);
  if (allowed.any()) {
    Route route = Fail(405, fmt::format("{} is not allowed for this path{}; use {}", method,
                                        QuotedPath(WithoutSite(target)), allowed.Words()));
    route.allow = allowed.Field();
    return route;
  }
  if (port == Port::kMetrics) {
    return Fail(404,
                "no such path; this port has GET /metrics only, the HTTP port everything else");
  }
  return Fail(404, fmt::format("no such path{}{} GET / lists the paths and the models here",
                               QuotedPath(WithoutSite(target)), NearPaths(path)));
}

bool IsAdministrative(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kRepositoryIndex:
    case Endpoint::kLoad:
    case Endpoint::kUnload:
    case Endpoint::kRegisterSharedMemory:
    case Endpoint::kUnregisterSharedMemory:
    case Endpoint::kChangeTraceSettings:
    case Endpoint::kChangeLogSettings:
      return true;
    default:
      return false;
  }
}

std::vector<std::string> ListRoutes() {
  std::vector<std::string> routes;
  for (const Entry& entry : kTable) {
    const bool absent = entry.pattern.find("sharedmemory") != std::string_view::npos ||
                        entry.pattern.ends_with("trace/setting") ||
                        entry.endpoint == Endpoint::kEmbedSparse;
    const bool optional = entry.endpoint == Endpoint::kMetrics;
    if (entry.port != Port::kInference || absent || optional) continue;
    routes.push_back(Shown(entry));
  }
  return routes;
}

}  // namespace chairlift::http
