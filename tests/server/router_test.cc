#include "server/http/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chairlift::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Route Find(std::string_view method, std::string_view target, Port port = Port::kInference) {
  return FindRoute(method, target, port, ServerLimits());
}

TEST(RouterTest, EveryPathOfTheProtocolIsFound) {
  const struct {
    const char* method;
    const char* target;
    Endpoint endpoint;
    const char* model;
    const char* version;
  } kCases[] = {
      {"GET", "/v2", Endpoint::kServerMetadata, "", ""},
      {"GET", "/v2/", Endpoint::kServerMetadata, "", ""},
      {"HEAD", "/v2", Endpoint::kServerMetadata, "", ""},
      {"GET", "/v2/health/live", Endpoint::kLive, "", ""},
      {"GET", "/v2/health/ready", Endpoint::kReady, "", ""},
      {"GET", "/v2/models/stats", Endpoint::kAllStatistics, "", ""},
      {"GET", "/v2/models/m", Endpoint::kModelMetadata, "m", ""},
      {"GET", "/v2/models/m/versions/12", Endpoint::kModelMetadata, "m", "12"},
      {"GET", "/v2/models/m/ready", Endpoint::kModelReady, "m", ""},
      {"GET", "/v2/models/m/versions/3/ready", Endpoint::kModelReady, "m", "3"},
      {"GET", "/v2/models/m/config", Endpoint::kModelConfig, "m", ""},
      {"GET", "/v2/models/m/versions/3/config", Endpoint::kModelConfig, "m", "3"},
      {"GET", "/v2/models/m/stats?x=1", Endpoint::kModelStatistics, "m", ""},
      {"GET", "/v2/models/m/versions/3/stats", Endpoint::kModelStatistics, "m", "3"},
      {"GET", "/v2/models/stats/stats", Endpoint::kModelStatistics, "stats", ""},
      {"POST", "/v2/models/m/infer", Endpoint::kInfer, "m", ""},
      {"POST", "/v2/models/m/versions/1/infer", Endpoint::kInfer, "m", "1"},
      {"POST", "/v2/models/a%2Fb%20c/infer", Endpoint::kInfer, "a/b c", ""},
      {"POST", "/v1/embeddings", Endpoint::kEmbeddings, "", ""},
      {"POST", "/v1/completions", Endpoint::kCompletions, "", ""},
      {"POST", "/v1/chat/completions", Endpoint::kChatCompletions, "", ""},
      {"POST", "/embed", Endpoint::kEmbed, "", ""},
      {"POST", "/rerank", Endpoint::kRerank, "", ""},
      {"POST", "/v1/rerank", Endpoint::kRerankDocuments, "", ""},
      {"GET", "/v1/models", Endpoint::kTextModels, "", ""},
      {"GET", "/v1/models/a%2Fb", Endpoint::kTextModel, "a/b", ""},
      {"POST", "/v2/rerank", Endpoint::kRerankDocuments, "", ""},
      {"POST", "/embeddings", Endpoint::kEmbeddings, "", ""},
      {"POST", "/embed_all", Endpoint::kEmbedAll, "", ""},
      {"POST", "/embed_sparse", Endpoint::kEmbedSparse, "", ""},
      {"POST", "/similarity", Endpoint::kSimilarity, "", ""},
      {"POST", "/predict", Endpoint::kPredict, "", ""},
      {"POST", "/tokenize", Endpoint::kTokenize, "", ""},
      {"POST", "/decode", Endpoint::kDecode, "", ""},
      {"POST", "/", Endpoint::kByModel, "", ""},
      {"POST", "/invocations", Endpoint::kByModel, "", ""},
      {"GET", "/info", Endpoint::kTextInfo, "", ""},
      {"GET", "/health", Endpoint::kReady, "", ""},
      {"HEAD", "/healthz", Endpoint::kReady, "", ""},
      {"GET", "/ping", Endpoint::kReady, "", ""},
      {"GET", "/version", Endpoint::kServerMetadata, "", ""},
      {"POST", "/v2/repository/index", Endpoint::kRepositoryIndex, "", ""},
      {"POST", "/v2/repository/models/m/load", Endpoint::kLoad, "m", ""},
      {"POST", "/v2/repository/models/m/unload", Endpoint::kUnload, "m", ""},
      {"GET", "/v2/systemsharedmemory/status", Endpoint::kSharedMemoryStatus, "", ""},
      {"GET", "/v2/cudasharedmemory/region/r/status", Endpoint::kSharedMemoryStatus, "r", ""},
      {"POST", "/v2/cudasharedmemory/region/r/register", Endpoint::kRegisterSharedMemory, "r", ""},
      {"POST", "/v2/systemsharedmemory/unregister", Endpoint::kUnregisterSharedMemory, "", ""},
      {"GET", "/v2/trace/setting", Endpoint::kTraceSettings, "", ""},
      {"POST", "/v2/models/m/trace/setting", Endpoint::kChangeTraceSettings, "m", ""},
      {"GET", "/v2/logging", Endpoint::kLogSettings, "", ""},
      {"POST", "/v2/logging", Endpoint::kChangeLogSettings, "", ""},
      {"GET", "http://host:1/v2/models/m?x", Endpoint::kModelMetadata, "m", ""},
      {"GET", "HTTPS://[::1]/v2", Endpoint::kServerMetadata, "", ""},
  };
  for (const auto& test : kCases) {
    const Route route = Find(test.method, test.target);
    EXPECT_EQ(route.endpoint, test.endpoint) << test.target;
    EXPECT_EQ(route.model, test.model) << test.target;
    EXPECT_EQ(route.version, test.version) << test.target;
  }
}

TEST(RouterTest, OtherPathsAreNotFound) {
  for (const char* target :
       {"/v1", "/v2/models", "/v2/models/", "/v2/models//infer", "/v2/models/m/versions//infer",
        "/v2/models/m/infer/x", "/v2/x", "/v2/models/m/versions/1/x", "//v2", "/docs"}) {
    const Route route = Find("GET", target);
    EXPECT_EQ(route.error_status, 404) << target;
    EXPECT_THAT(route.error, AllOf(HasSubstr(target), HasSubstr("GET / lists the paths")));
  }
}

TEST(RouterTest, AnUnknownPathIsToldWhichAreNear) {
  const struct {
    const char* target;
    const char* near;
  } kCases[] = {
      {"/v1/model", "did you mean GET /v1/models?"},
      {"/v1/embedding", "did you mean POST /v1/embeddings?"},
      {"/v2/models/a/infere", "did you mean POST /v2/models/{model}/infer?"},
      {"/generate", "did you mean POST /v2/models/{model}/generate?"},
      {"/v1/v1/chat/completions",
       "did you mean POST /v1/completions, or POST /v1/chat/completions?"},
      {"/chat/completions", "did you mean POST /v1/chat/completions?"},
      {"/v2/models/a/embed", "did you mean POST /embed?"},
      {"/v1/responses", "; chats are POST /v1/chat/completions; GET / lists"},
      {"/nothing/like/it", "'; GET / lists the paths and the models here"},
  };
  for (const auto& test : kCases) {
    const Route route = Find("GET", test.target);
    EXPECT_EQ(route.error_status, 404) << test.target;
    EXPECT_NE(route.error.find(test.near), std::string::npos) << route.error;
    EXPECT_NE(route.error.find(test.target), std::string::npos) << route.error;
    EXPECT_NE(route.error.find("GET / lists the paths"), std::string::npos) << route.error;
  }
  // What is long, or might break a line of the log, is not repeated, or not whole.
  for (const std::string& target : {"/" + std::string(5000, 'x'), std::string("/caf\xc3\xa9")}) {
    EXPECT_LT(Find("GET", target).error.size(), 200u);
    EXPECT_EQ(Find("GET", target).error.find('\xc3'), std::string::npos);
  }
}

TEST(RouterTest, AWrongMethodIsToldWhichWouldDo) {
  const Route get = Find("GET", "/v2/models/m/infer");
  EXPECT_EQ(get.error_status, 405);
  EXPECT_EQ(get.allow, "POST, OPTIONS");
  const Route post = Find("DELETE", "/v2/models/m");
  EXPECT_EQ(post.error_status, 405);
  EXPECT_EQ(post.allow, "GET, HEAD, OPTIONS");
  EXPECT_EQ(Find("PUT", "/v2/logging").allow, "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(Find("BREW", "/v2").error_status, 501);
}

TEST(RouterTest, OptionsSaysWhichMethodsThereAre) {
  EXPECT_EQ(Find("OPTIONS", "*").endpoint, Endpoint::kOptions);
  EXPECT_EQ(Find("OPTIONS", "*").allow, "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(Find("OPTIONS", "*", Port::kMetrics).allow, "GET, HEAD, OPTIONS");
  EXPECT_EQ(Find("OPTIONS", "/v2/models/m/infer").allow, "POST, OPTIONS");
  EXPECT_EQ(Find("OPTIONS", "/v2/nothing").error_status, 404);
}

TEST(RouterTest, BadNamesAndVersionsAreBadRequests) {
  const std::string long_name(257, 'n');
  for (const std::string& target :
       {std::string("/v2/models/%zz"), std::string("/v2/models/a%2"),
        "/v2/models/" + long_name + "/infer", std::string("/v2/models/m/versions/latest"),
        std::string("/v2/models/m/versions/-1"),
        std::string("/v2/models/m/versions/1234567890123456789"), std::string("v2"),
        std::string("http:///v2"), std::string("ftp://host/v2"), std::string("*")}) {
    const char* method = target.ends_with("infer") ? "POST" : "GET";
    EXPECT_EQ(Find(method, target).error_status, 400) << target;
  }
}

TEST(RouterTest, MetricsLiveOnTheirOwnPort) {
  EXPECT_EQ(Find("GET", "/metrics", Port::kMetrics).endpoint, Endpoint::kMetrics);
  EXPECT_EQ(Find("GET", "/v2", Port::kMetrics).error_status, 404);
  EXPECT_EQ(Find("POST", "/metrics", Port::kMetrics).error_status, 405);
}

}  // namespace
}  // namespace chairlift::http
