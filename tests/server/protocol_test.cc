// What unmodified clients, browsers and proxies expect of the protocol's surface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/retry_after.h"
#include "base/status.h"
#include "server/http/response_head.h"
#include "server/protocol/errors.h"
#include "server/server_fixture.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(ServerTest, ARawBinaryRequestIsTheDataOfTheOnlyInput) {
  Serve();
  const std::vector<float> values = {1, 2, 3, 4};
  const std::string bytes(reinterpret_cast<const char*>(values.data()), 16);
  const HttpAnswer answer = Ask(Post(kInferPath, bytes, "Inference-Header-Content-Length: 0\r\n"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const size_t head = std::stoul(answer.Field("Inference-Header-Content-Length"));
  const json parsed = json::parse(answer.body.substr(0, head));
  EXPECT_EQ(parsed["outputs"][0]["shape"], json::array({1, 4}));
  EXPECT_EQ(parsed["outputs"][0]["parameters"]["binary_data_size"], 16);
  EXPECT_EQ(answer.body.substr(head), bytes);

  const HttpAnswer odd =
      Ask(Post(kInferPath, bytes + "x", "Inference-Header-Content-Length: 0\r\n"));
  EXPECT_EQ(odd.status, 400);
  EXPECT_EQ(ErrorOf(odd),
            "input 'x': the body has 17 bytes, which do not fill FP32 of shape [1,4]");
}

TEST_F(ServerTest, MetadataAndConfigAgreeOnTheBatch) {
  Serve();
  engine_->set_model([](ModelMetadata& model) {
    model.inputs = {{"ids", DType::kInt64, {-1, -1}}, {"n", DType::kInt64, {-1}}};
    model.outputs = {{"y", DType::kFloat, {-1, 7}}};
    model.config.max_batch_size = 0;  // as of packed tokens and of cells: as many as come
  });
  const json metadata = json::parse(Ask(Get("/v2/models/identity")).body);
  EXPECT_EQ(metadata["inputs"][0]["shape"], json::array({-1, -1}));
  json config = json::parse(Ask(Get("/v2/models/identity/config")).body);
  EXPECT_GT(config["max_batch_size"], 1000);
  EXPECT_EQ(config["input"][0]["dims"], json::array({-1}));
  EXPECT_EQ(config["input"][1]["dims"], json::array());
  EXPECT_EQ(config["output"][0]["dims"], json::array({7}));

  engine_->set_model([](ModelMetadata& model) { model.batches = false; });
  config = json::parse(Ask(Get("/v2/models/identity/config")).body);
  EXPECT_EQ(config["max_batch_size"], 0);
  EXPECT_EQ(config["input"][0]["dims"], json::array({8, 4}));
  EXPECT_EQ(json::parse(Ask(Get("/v2/models/identity")).body)["inputs"][0]["shape"],
            json::array({8, 4}));
}

TEST_F(ServerTest, AStateIsPartOfTheSequencesAndNoInput) {
  Serve();
  engine_->set_model([](ModelMetadata& model) {
    model.inputs = {{"x", DType::kFloat, {-1, 4}}, {"state", DType::kFloat, {-1, 2}}};
    model.outputs = {{"y", DType::kFloat, {-1, 4}}, {"stateN", DType::kFloat, {-1, 2}}};
    model.config.sequence_state = {{"stateN", "state"}};
    model.config.max_sequences = 17;
  });
  const json metadata = json::parse(Ask(Get("/v2/models/identity")).body);
  ASSERT_EQ(metadata["inputs"].size(), 1);
  EXPECT_EQ(metadata["inputs"][0]["name"], "x");
  ASSERT_EQ(metadata["outputs"].size(), 1);
  EXPECT_EQ(metadata["outputs"][0]["name"], "y");
  const json config = json::parse(Ask(Get("/v2/models/identity/config")).body);
  EXPECT_EQ(config["input"].size(), 1);
  EXPECT_EQ(config["output"].size(), 1);
  EXPECT_FALSE(config.contains("dynamic_batching"));
  const json& sequences = config["sequence_batching"];
  EXPECT_EQ(sequences["max_sequence_idle_microseconds"], 60'000'000);
  EXPECT_EQ(sequences["oldest"]["max_candidate_sequences"], 17);
  EXPECT_EQ(sequences["state"], json::parse(R"([{"input_name":"state","output_name":"stateN",
                                                 "data_type":"TYPE_FP32","dims":[2]}])"));
}

TEST_F(ServerTest, HealthSaysSoInItsBody) {
  Serve();
  EXPECT_EQ(Ask(Get("/v2/health/live")).body, R"({"live":true})");
  EXPECT_EQ(Ask(Get("/v2/health/ready")).body, R"({"ready":true})");
  EXPECT_EQ(Ask(Get("/v2/models/identity/ready")).body, R"({"name":"identity","ready":true})");
}

TEST_F(ServerTest, ThereIsNoSharedMemory) {
  Serve();
  for (const std::string kind : {"/v2/systemsharedmemory", "/v2/cudasharedmemory"}) {
    EXPECT_EQ(Ask(Get(kind + "/status")).body, "[]");
    const HttpAnswer region = Ask(Get(kind + "/region/r/status"));
    EXPECT_EQ(region.status, 404);
    EXPECT_THAT(ErrorOf(region), HasSubstr("'r'"));
    EXPECT_EQ(Ask(Post(kind + "/unregister", "")).status, 200);
    EXPECT_EQ(Ask(Post(kind + "/region/r/unregister", "")).status, 200);
    const HttpAnswer refused = Ask(Post(kind + "/region/r/register", R"({"byte_size":64})"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(ErrorOf(refused), HasSubstr("send tensors in the request"));
  }
}

TEST_F(ServerTest, TraceAndLogAreShownAndStayAsTheyAre) {
  Serve();
  for (const char* path : {"/v2/trace/setting", "/v2/models/identity/trace/setting"}) {
    const std::string settings = Ask(Get(path)).body;
    EXPECT_EQ(json::parse(settings)["trace_level"], json::array({"OFF"}));
    EXPECT_EQ(Ask(Post(path, "{}")).body, settings);
    EXPECT_EQ(Ask(Post(path, R"({"trace_level":"OFF","trace_rate":null})")).body, settings);
    const HttpAnswer refused = Ask(Post(path, R"({"trace_level":["TIMESTAMPS"]})"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(ErrorOf(refused), HasSubstr("\"trace_level\" cannot be changed"));
  }
  EXPECT_EQ(Ask(Get("/v2/models/nobody/trace/setting")).status, 404);
  const std::string log = Ask(Get("/v2/logging")).body;
  EXPECT_EQ(json::parse(log)["log_error"], true);
  EXPECT_EQ(Ask(Post("/v2/logging", R"({"log_error":true})")).body, log);
  const HttpAnswer refused = Ask(Post("/v2/logging", R"({"log_verbose_level":3})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("--log-level"));
}

TEST_F(ServerTest, AnUnknownModelComesBeforeErrorsOfItsBody) {
  Serve();
  for (const char* verb : {"infer", "generate", "generate_stream"}) {
    for (const std::string path : {"/v2/models/nobody/", "/v2/models/identity/versions/9/"}) {
      EXPECT_EQ(Ask(Post(path + verb, "{")).status, 404) << path << verb;
      EXPECT_EQ(Ask(Post(path + verb, "x", "Content-Encoding: gzip\r\n")).status, 404);
      EXPECT_EQ(Ask(Post(path + verb, "x", "Inference-Header-Content-Length: 0\r\n")).status, 404);
      EXPECT_EQ(Ask(Post(path + verb, "x", "Inference-Header-Content-Length: 2\r\n")).status, 404);
    }
  }
  EXPECT_EQ(Ask(Post(kInferPath, "{")).status, 400);
}

TEST_F(ServerTest, JsonErrorsSayWhere) {
  Serve();
  EXPECT_THAT(ErrorOf(Ask(Post(kInferPath, R"({"inputs":[],})"))), HasSubstr("JSON at byte 13:"));
  EXPECT_THAT(ErrorOf(Ask(Post("/v2/repository/index", R"({"ready":tru})"))),
              HasSubstr("JSON at byte 9"));
}

TEST_F(ServerTest, RepositoryRequestsHaveEachFieldOnce) {
  Serve();
  const HttpAnswer refused =
      Ask(Post("/v2/repository/index", R"({"ready":true,"a":{"b":1},"ready":false})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorOf(refused), "\"ready\" is given twice");
  EXPECT_EQ(Ask(Post("/v2/repository/index", R"({"a":{"ready":1},"ready":true})")).status, 200);
}

// Whatever a chat template reads of them: roles, parts and tool calls.
TEST_F(ServerTest, MessagesOfAChatHaveEachFieldOnce) {
  Serve();
  const struct {
    const char* messages;
    const char* error;
  } kCases[] = {
      {R"([{"role":"user","content":"a","content":"b"}])",
       "\"content\" is given twice in messages[0]"},
      {R"([{"role":"user","content":"a"},{"role":"user","role":"system","content":"a"}])",
       "\"role\" is given twice in messages[1]"},
      {R"([{"role":"user","content":"a","r\u006fle":"system"}])",
       "\"role\" is given twice in messages[0]"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"text":"a","text":"b"}]}])",
       "\"text\" is given twice in messages[0].content[1]"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","name":"g"}}]}])",
       "\"name\" is given twice in messages[0].tool_calls[0].function"},
      {R"([{"role":"user","content":"a","mine":[[{"b":{"c":null,"c":null}}]]}])",
       "\"c\" is given twice in messages[0].mine[0][0].b"},
  };
  for (const auto& test : kCases) {
    const HttpAnswer refused =
        Ask(Post("/v1/chat/completions", fmt::format(R"({{"messages":{}}})", test.messages)));
    EXPECT_EQ(refused.status, 400) << test.messages;
    EXPECT_EQ(json::parse(refused.body)["error"]["message"], test.error) << test.messages;
  }
}

TEST_F(ServerTest, TargetsMayNameTheSite) {
  Serve();
  EXPECT_EQ(
      Ask("GET http://localhost:8000/v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").body,
      R"({"live":true})");
}

TEST_F(ServerTest, ARequestNamesItsHostOnce) {
  Serve();
  const HttpAnswer none = Ask("GET /v2 HTTP/1.1\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(none.status, 400);
  EXPECT_THAT(ErrorOf(none), HasSubstr("Host"));
  EXPECT_EQ(Ask("GET /v2 HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n").status, 400);
  EXPECT_EQ(Ask("GET /v2 HTTP/1.1\r\nHost: a/b\r\n\r\n").status, 400);
  EXPECT_EQ(Ask("GET /v2 HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n").status, 200);
  EXPECT_EQ(Ask("GET /v2 HTTP/1.1\r\nHost:\r\n\r\n").status, 200);
  EXPECT_EQ(Ask("GET /v2 HTTP/1.0\r\n\r\n").status, 200);
}

TEST_F(ServerTest, AnswersAreDated) {
  EXPECT_EQ(http::HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  Serve();
  const char* date = "[A-Z][a-z]+, [0-9]+ [A-Z][a-z]+ [0-9]+ [0-9]+:[0-9]+:[0-9]+ GMT";
  for (const std::string& request :
       {Get("/v2"), Get("/nothing"), Post(kInferPath, kInferBody), std::string("x\r\n\r\n")}) {
    EXPECT_THAT(Ask(request).Field("Date"), MatchesRegex(date));
  }
}

TEST_F(ServerTest, OptionsNamesTheMethods) {
  Serve();
  HttpClient client(server_->http_port());
  const HttpAnswer all = client.Ask("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(all.status, 200);
  EXPECT_EQ(all.Field("Allow"), "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(all.Field("Content-Length"), "0");
  EXPECT_EQ(client.Ask("OPTIONS /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n\r\n").Field("Allow"),
            "POST, OPTIONS");
}

TEST_F(ServerTest, EmptyLinesBetweenRequestsDoNotCount) {
  Serve();
  HttpClient client(server_->http_port());
  EXPECT_EQ(client.Ask("\r\n\r\n" + Get("/v2")).status, 200);
  EXPECT_EQ(client.Ask(Post(kInferPath, kInferBody) + "\r\n").status, 200);
  for (const char byte : std::string_view("\r\n\r\n")) ASSERT_TRUE(client.Send({&byte, 1}));
  EXPECT_EQ(client.Ask(Get("/v2")).status, 200);
  // The connection is idle all the while: nothing is in its way when the server drains.
  client.Send("\r\n");
  EXPECT_TRUE(server_->Drain(std::chrono::seconds(20)).ok());
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(ServerTest, PagesOfOtherSitesReadAnswersWhereTheyMay) {
  const std::string get = "GET /v2 HTTP/1.1\r\nHost: x\r\nOrigin: https://page\r\n\r\n";
  const std::string ask =
      "OPTIONS /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nOrigin: https://page\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n";
  Serve();
  EXPECT_EQ(Ask(get).Field("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(Ask(ask).Field("Access-Control-Allow-Methods"), "");

  Serve(FakeEngine::Answer::kOnOwnThread, {}, {"https://other", "https://page"});
  EXPECT_EQ(Ask(get).Field("Access-Control-Allow-Origin"), "https://page");
  EXPECT_EQ(Ask(get).Field("Vary"), "Origin");
  EXPECT_EQ(Ask(get).Field("Access-Control-Allow-Methods"), "");
  EXPECT_EQ(Ask(ask).Field("Access-Control-Allow-Methods"), "GET, HEAD, POST");
  EXPECT_THAT(Ask(ask).Field("Access-Control-Allow-Headers"),
              HasSubstr("Inference-Header-Content-Length"));
  const std::string stranger = "GET /v2 HTTP/1.1\r\nHost: x\r\nOrigin: https://page.evil\r\n\r\n";
  EXPECT_EQ(Ask(stranger).Field("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(Ask(Get("/v2")).Field("Access-Control-Allow-Origin"), "");

  Serve(FakeEngine::Answer::kOnOwnThread, {}, {"*"});
  EXPECT_EQ(Ask(stranger).Field("Access-Control-Allow-Origin"), "*");
}

TEST_F(ServerTest, SitesAreNamedAsBrowsersNameThem) {
  FakeEngine engine;
  for (const char* origin :
       {"page", "https://", "https://page/", "https://a, https://b", "https://*"}) {
    ServerOptions options;
    options.http_port = 0;
    options.metrics_port = -1;
    options.cors_origins = {origin};
    EXPECT_THAT(Message(Server::Start(engine, options).status()), HasSubstr(origin));
  }
}

TEST_F(ServerTest, Ipv6AddressesStandInBrackets) {
  EXPECT_EQ(HostAndPort("127.0.0.1", 8000), "127.0.0.1:8000");
  EXPECT_EQ(HostAndPort("localhost", 8000), "localhost:8000");
  EXPECT_EQ(HostAndPort("::1", 8000), "[::1]:8000");
  EXPECT_EQ(HostAndPort("[::1]", 8000), "[::1]:8000");
  FakeEngine engine;
  ServerOptions options;
  options.http_port = 0;
  options.metrics_port = -1;
  for (const char* address : {"::1", "[::1]"}) {
    options.address = address;
    const Status status = Server::Start(engine, options).status();
    // A machine may have no IPv6.
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
  for (const char* address : {"[127.0.0.1]", "[::1", "[]"}) {
    options.address = address;
    EXPECT_TRUE(absl::IsInvalidArgument(Server::Start(engine, options).status())) << address;
  }
}

TEST(ErrorsTest, WhenToRetryIsInWholeSeconds) {
  using std::chrono::milliseconds;
  const auto seconds = [](Duration after) {
    return protocol::ErrorOf(WithRetryAfter(ResourceExhausted("full"), after)).retry_after_s;
  };
  EXPECT_EQ(protocol::ErrorOf(ResourceExhausted("full")).retry_after_s, 1);
  EXPECT_EQ(seconds(milliseconds(20)), 1);
  EXPECT_EQ(seconds(milliseconds(2300)), 3);
  EXPECT_EQ(seconds(std::chrono::hours(30)), 3600);
}

}  // namespace
}  // namespace chairlift
