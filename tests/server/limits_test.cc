// Every limit and every refusal, by sending what breaks it over a real socket.
#include "server/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "server/server_fixture.h"

namespace chairlift {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class LimitsTest : public ServerTest {
 protected:
  // The error that `request` is answered with.
  std::string ExpectRefused(std::string_view request, int status) {
    const HttpAnswer answer = Ask(request);
    EXPECT_EQ(answer.status, status) << request.substr(0, 200);
    return ErrorOf(answer);
  }
  // That `part` of a request is answered after 20 ms, and its connection closed.
  void ExpectTimeout(std::string_view part) {
    HttpClient client(server_->http_port());
    const HttpAnswer answer = client.Ask(part);
    EXPECT_EQ(answer.status, 408);
    EXPECT_THAT(ErrorOf(answer), HasSubstr("20 ms"));
    EXPECT_TRUE(client.AtEnd());
  }
  // That the connection of a client that does not read its answer, of 64 MiB, is closed.
  void ExpectCutOff() {
    Tensor large = Tensor::Allocate(DType::kUInt8, {64 << 20});
    std::memset(large.raw(), 1, large.byte_size());
    engine_->set_output(large);
    std::string body = kInferBody;
    body.insert(body.size() - 1, R"(,"parameters":{"binary_data_output":true})");
    HttpClient client(server_->http_port());
    client.Send(Post(kInferPath, body));
    engine_->AwaitRequests(1);
    bool closed = false;
    for (int attempt = 0; attempt < 100'000 && !closed; ++attempt) {
      closed = Metrics().find("chairlift_http_connections 0\n") != std::string::npos;
    }
    EXPECT_TRUE(closed);
    EXPECT_LT(client.Read().body.size(), large.byte_size());
  }
};

TEST_F(LimitsTest, HeadersHaveALargestSize) {
  ServerLimits limits;
  limits.max_header_bytes = 1000;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  const std::string long_field = "X: " + std::string(1000, 'x') + "\r\n";
  EXPECT_THAT(ExpectRefused(Post(kInferPath, "{}", long_field), 431), HasSubstr("1000 bytes"));
  std::string many;
  for (int i = 0; i < 100; ++i) many += "Field: value\r\n";
  EXPECT_THAT(ExpectRefused(Post(kInferPath, "{}", many), 431), HasSubstr("1000 bytes"));
  EXPECT_THAT(ExpectRefused(Get("/" + std::string(2000, 'x')), 431), HasSubstr("1000 bytes"));
  EXPECT_THAT(ExpectRefused(std::string(2000, 'x'), 431), HasSubstr("1000 bytes"));
  // Each part below the limit, the sum above it.
  EXPECT_THAT(ExpectRefused("GET /" + std::string(600, 'x') +
                                " HTTP/1.1\r\nHost: x\r\nX: " + std::string(600, 'x') + "\r\n\r\n",
                            431),
              HasSubstr("1000 bytes"));
  const std::string endless =
      "POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\n"
      "Transfer-Encoding: chunked\r\n\r\n1;" +
      std::string(1100, 'x');
  EXPECT_THAT(ExpectRefused(endless, 431), HasSubstr("chunk"));
  EXPECT_EQ(Ask(Post(kInferPath, kInferBody, "X: " + std::string(800, 'x') + "\r\n")).status, 200);
}

TEST_F(LimitsTest, AnUnknownModelIsToldBeforeTheSizeOfTheBody) {
  ServerLimits limits;
  limits.max_body_bytes = 20'000;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  for (const char* path : {"/v2/models/nobody/infer", "/v2/models/nobody/generate"}) {
    EXPECT_THAT(ExpectRefused(Post(path, std::string(20'001, ' ')), 404), HasSubstr("'nobody'"));
  }
}

TEST_F(LimitsTest, BodiesHaveALargestSize) {
  ServerLimits limits;
  limits.max_body_bytes = 20'000;
  limits.max_json_bytes = 10'000;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  const std::string post = "POST " + std::string(kInferPath) + " HTTP/1.1\r\nHost: x\r\n";
  // Refused by the header alone: the body is never sent, nor asked for.
  EXPECT_THAT(ExpectRefused(post + "Content-Length: 20001\r\nExpect: 100-continue\r\n\r\n", 413),
              HasSubstr("20000 bytes"));
  EXPECT_THAT(ExpectRefused(post + "Content-Length: 10001\r\n\r\n", 413), HasSubstr("10000"));
  EXPECT_THAT(ExpectRefused(post + "Content-Length: 10001\r\n"
                                   "Inference-Header-Content-Length: 10001\r\n\r\n",
                            413),
              HasSubstr("10000"));
  // Sent whole before the answer is read.
  EXPECT_THAT(ExpectRefused(Post(kInferPath, std::string(300'000, ' ')), 413),
              HasSubstr("20000 bytes"));
  EXPECT_THAT(ExpectRefused(post + "Transfer-Encoding: chunked\r\n\r\n4e21\r\n", 413),
              HasSubstr("20000 bytes"));
  EXPECT_THAT(ExpectRefused(post + "Transfer-Encoding: chunked\r\n\r\n2711\r\n" +
                                std::string(10'001, ' ') + "\r\n",
                            413),
              HasSubstr("10000"));
  EXPECT_EQ(Ask(Post(kInferPath, std::string(9'000, ' ') + kInferBody)).status, 200);
}

TEST_F(LimitsTest, BodiesTogetherHaveALargestSize) {
  ServerLimits limits;
  limits.max_buffered_bytes = 100'000;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  HttpClient first(server_->http_port());
  const std::string large = Post(kInferPath, std::string(60'000, ' ') + kInferBody);
  first.Send(Post(kInferPath, kInferBody));
  ASSERT_EQ(first.Read().status, 200);
  first.Send(large.substr(0, 50'000));
  // Once this second connection is answered, the first one's half of a body has
  // been read too: one thread serves both, in order of arrival.
  ASSERT_EQ(Ask(Get("/v2")).status, 200);
  const HttpAnswer refused = Ask(large);
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("100000 bytes"));
  const std::string chunk = "fa00\r\n" + std::string(0xfa00, ' ') + "\r\n";
  EXPECT_EQ(Ask("POST " + std::string(kInferPath) +
                " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + chunk)
                .status,
            503);
  first.Send(large.substr(50'000));
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(Ask(large).status, 200);
}

TEST_F(LimitsTest, ABodyThatIsOnlyAnnouncedTakesNothingFromTheBudget) {
  ServerLimits limits;
  limits.max_buffered_bytes = 100'000;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  std::vector<std::unique_ptr<HttpClient>> trickles;
  for (int i = 0; i < 50; ++i) {
    trickles.push_back(std::make_unique<HttpClient>(server_->http_port()));
    trickles.back()->Send("POST " + std::string(kInferPath) +
                          " HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n{");
  }
  ASSERT_EQ(Ask(Get("/v2")).status, 200);
  EXPECT_EQ(Ask(Post(kInferPath, std::string(90'000, ' ') + kInferBody)).status, 200);
}

TEST_F(LimitsTest, AClientHasAShareOfBodies) {
  ServerLimits limits;
  limits.max_client_buffered_bytes = 100'000;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  const HttpAnswer refused = Ask(Post(kInferPath, std::string(110'000, ' ') + kInferBody));
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("client 127.0.0.1 holds its limit of 100000 bytes"));
  EXPECT_EQ(Ask(Post(kInferPath, std::string(90'000, ' ') + kInferBody)).status, 200);
}

TEST_F(LimitsTest, AClientHasAShareOfConnections) {
  ServerLimits limits;
  limits.max_client_connections = 1;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  HttpClient first(server_->http_port());
  ASSERT_EQ(first.Ask(Get("/v2")).status, 200);
  const HttpAnswer refused = HttpClient(server_->http_port()).Read();
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("client 127.0.0.1 has its limit of 1 connections"));
  EXPECT_EQ(first.Ask(Get("/v2")).status, 200);
}

TEST_F(LimitsTest, RefusedConnectionsOfAClientLeaveRoomForOthers) {
  ServerLimits limits;
  limits.max_client_connections = 1;
  limits.max_connections = 40;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  std::vector<std::unique_ptr<HttpClient>> greedy;
  for (int i = 0; i < 100; ++i) {
    greedy.push_back(std::make_unique<HttpClient>(server_->http_port()));
  }
  HttpClient other(server_->http_port(), INADDR_LOOPBACK + 1);
  EXPECT_EQ(other.Ask(Get("/v2")).status, 200);
}

TEST_F(LimitsTest, AClientHasAShareOfRequestsInFlight) {
  ServerLimits limits;
  limits.max_client_requests = 1;
  Serve(FakeEngine::Answer::kWhenReleased, limits);
  HttpClient first(server_->http_port());
  first.Send(Post(kInferPath, kInferBody));
  engine_->AwaitRequests(1);
  HttpClient second(server_->http_port());
  const HttpAnswer refused = second.Ask(Post(kInferPath, kInferBody));
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("client 127.0.0.1 has its limit of 1 requests"));
  engine_->Release();
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(second.Ask(Post(kInferPath, kInferBody)).status, 200);
}

TEST_F(LimitsTest, AdministrativeBodiesAreSmall) {
  ServerLimits limits;
  limits.max_admin_body_bytes = 1000;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  const std::string large = "{" + std::string(1000, ' ') + "}";
  for (const char* path : {"/v2/repository/index", "/v2/repository/models/identity/load",
                           "/v2/repository/models/identity/unload"}) {
    EXPECT_THAT(ExpectRefused(Post(path, large), 413), HasSubstr("1000 bytes for this path"));
    EXPECT_THAT(
        ExpectRefused("POST " + std::string(path) +
                          " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
                          fmt::format("{:x}\r\n{}\r\n", large.size(), large),
                      413),
        HasSubstr("1000 bytes for this path"));
    EXPECT_THAT(
        ExpectRefused(Post(path, "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"),
                      400),
        HasSubstr("32 levels"));
  }
  EXPECT_EQ(Ask(Post("/v2/repository/index", "{}")).status, 200);
}

TEST_F(LimitsTest, BodiesThatTrickleTimeOut) {
  ServerLimits limits;
  limits.body_timeout = milliseconds(50);
  limits.min_transfer_rate = size_t{1} << 40;  // no byte gains a noticeable time
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  HttpClient client(server_->http_port());
  client.Send("POST " + std::string(kInferPath) +
              " HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n");
  while (client.Send(" ")) {
    const HttpAnswer other = Ask(Get("/v2"));  // a pause
    if (other.status != 200 || client.HasAnswer()) break;
  }
  const HttpAnswer answer = client.Read();
  EXPECT_EQ(answer.status, 408);
  EXPECT_THAT(ErrorOf(answer), HasSubstr("least rate of 1099511627776 bytes/s"));
}

TEST_F(LimitsTest, JsonHasADeepestNesting) {
  Serve();
  const int limit = ServerLimits().max_json_depth;
  const auto nested = [](int levels) {
    return R"({"inputs":[],"x":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  EXPECT_THAT(ExpectRefused(Post(kInferPath, nested(limit)), 400), HasSubstr("32 levels"));
  EXPECT_THAT(ExpectRefused(Post(kInferPath, nested(100'000)), 400), HasSubstr("32 levels"));
  EXPECT_EQ(Ask(Post(kInferPath, nested(limit - 2))).status, 200);
}

TEST_F(LimitsTest, TensorsHaveLimitsOfTheirOwn) {
  ServerLimits limits;
  limits.max_tensors = 3;
  limits.max_rank = 4;
  limits.max_tensor_elements = 100;
  limits.max_name_bytes = 10;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  const auto request = [](std::string_view shape, std::string_view name) {
    return Post(kInferPath, fmt::format(R"({{"inputs":[{{"name":"{}","datatype":"INT8",)"
                                        R"("shape":{},"data":[]}}]}})",
                                        name, shape));
  };
  EXPECT_THAT(ExpectRefused(request("[101]", "x"), 400), HasSubstr("101 elements"));
  EXPECT_THAT(ExpectRefused(request("[0,1,1,1,1]", "x"), 400), HasSubstr("4 dimensions"));
  EXPECT_THAT(ExpectRefused(request("[0]", "elevenbytes"), 400), HasSubstr("limit is 10"));
  EXPECT_THAT(ExpectRefused(Post("/v2/models/elevenbytes/infer", "{}"), 400),
              HasSubstr("limit is 10"));
  std::string inputs = R"({"inputs":[)";
  for (int i = 0; i < 4; ++i) {
    inputs += fmt::format(R"({}{{"name":"{}","datatype":"INT8","shape":[0],"data":[]}})",
                          i == 0 ? "" : ",", i);
  }
  EXPECT_THAT(ExpectRefused(Post(kInferPath, inputs + "]}"), 400), HasSubstr("3 inputs"));
  EXPECT_THAT(ExpectRefused(Post(kInferPath, R"({"inputs":[],"outputs":[{"name":"a"},)"
                                             R"({"name":"b"},{"name":"c"},{"name":"d"}]})"),
                            400),
              HasSubstr("3 outputs"));
  EXPECT_EQ(Ask(request("[0]", "x")).status, 200);
}

TEST_F(LimitsTest, ConnectionsAreCounted) {
  ServerLimits limits;
  limits.max_connections = 2;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  HttpClient first(server_->http_port());
  ASSERT_EQ(first.Ask(Get("/v2")).status, 200);
  {
    HttpClient second(server_->http_port());
    ASSERT_EQ(second.Ask(Get("/v2")).status, 200);
    HttpClient third(server_->http_port());
    const HttpAnswer refused = third.Read();
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(ErrorOf(refused), HasSubstr("limit of 2 connections"));
    EXPECT_EQ(refused.Field("Connection"), "close");
    EXPECT_TRUE(third.AtEnd());
  }
  EXPECT_THAT(Metrics(), HasSubstr("chairlift_http_connections_refused_total 1"));
  // The second one's place is free again as soon as its end is noticed.
  int status = 0;
  for (int attempt = 0; attempt < 1000 && status != 200; ++attempt) status = Ask(Get("/v2")).status;
  EXPECT_EQ(status, 200);
}

TEST_F(LimitsTest, ManyConnectionsAreServedAtOnce) {
  Serve();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->http_port()));
    ASSERT_TRUE(clients.back()->Send(Post(kInferPath, kInferBody)));
  }
  for (const auto& client : clients) EXPECT_EQ(client->Read().body, kInferAnswer);
  EXPECT_THAT(Metrics(), HasSubstr("chairlift_http_connections 300\n"));
}

TEST_F(LimitsTest, SlowHeadersTimeOut) {
  ServerLimits limits;
  limits.header_timeout = milliseconds(20);
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  ExpectTimeout("POST /v2");
}

TEST_F(LimitsTest, BodiesThatStopTimeOut) {
  ServerLimits limits;
  limits.body_timeout = milliseconds(20);
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  const std::string request = Post(kInferPath, kInferBody);
  ExpectTimeout(request.substr(0, request.size() - 5));
  ExpectTimeout("POST " + std::string(kInferPath) +
                " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{");
}

TEST_F(LimitsTest, IdleConnectionsAreClosed) {
  ServerLimits limits;
  limits.idle_timeout = milliseconds(20);
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  HttpClient silent(server_->http_port());
  EXPECT_TRUE(silent.AtEnd());
  // A connection on which this thread sends too late has been closed: then another.
  std::unique_ptr<HttpClient> client;
  do {
    client = std::make_unique<HttpClient>(server_->http_port());
  } while (client->Ask(Get("/v2")).status != 200);
  EXPECT_TRUE(client->AtEnd());
}

TEST_F(LimitsTest, ClientsThatDoNotReadAreClosed) {
  ServerLimits limits;
  limits.body_timeout = milliseconds(20);
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  ExpectCutOff();
}

TEST_F(LimitsTest, AnswersThatNobodyReadsHaveALargestSizeTogether) {
  ServerLimits limits;
  limits.max_buffered_bytes = 1 << 20;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  ExpectCutOff();
  engine_->set_output(Tensor::Allocate(DType::kBool, {0}));
  // What it held is given back: a body of nearly the whole budget finds room.
  EXPECT_EQ(Ask(Post(kInferPath, std::string(1'000'000, ' ') + kInferBody)).status, 200);
}

TEST_F(LimitsTest, LoadsWaitInABoundedQueue) {
  ServerLimits limits;
  limits.max_admin_requests = 1;
  Serve(FakeEngine::Answer::kWhenReleased, limits);
  const std::string load = Post("/v2/repository/models/identity/load", "");
  HttpClient running(server_->http_port());
  running.Send(load);
  engine_->AwaitRepositoryCalls(1);
  HttpClient waiting(server_->http_port());
  waiting.Send(load);
  ASSERT_EQ(Ask(Get("/v2")).status,
            200);  // answered while a load is running, and after waiting's
  const HttpAnswer refused = Ask(load);
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("1 loads and unloads are waiting"));
  engine_->Release();
  EXPECT_EQ(running.Read().status, 200);
  EXPECT_EQ(waiting.Read().status, 200);
}

// The form of a route belongs to its own request, also on a connection that goes on.
TEST_F(LimitsTest, WhatIsNotHttpIsNotRefusedInTheFormOfTheRequestBefore) {
  Serve();
  for (const std::string_view next :
       {"GET /v2 HTTP/3.0\r\n\r\n",
        "POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"}) {
    HttpClient client(server_->http_port());
    client.Send(Post("/embed", "{}"));
    const HttpAnswer first = client.Read();
    EXPECT_EQ(first.status, 404);  // no model takes text
    EXPECT_THAT(first.body, HasSubstr("error_type"));
    client.Send(next);
    const HttpAnswer second = client.Read();
    EXPECT_THAT(second.status, ::testing::AnyOf(505, 501));
    EXPECT_THAT(second.body, ::testing::Not(HasSubstr("error_type")));
  }
}

TEST_F(LimitsTest, RequestsThatAreNotHttpAreRefused) {
  Serve();
  const std::string post = "POST " + std::string(kInferPath) + " HTTP/1.1\r\nHost: x\r\n";
  const struct {
    std::string request;
    int status;
    const char* error;
  } kCases[] = {
      {"\n\r\n", 400, "not a valid HTTP request"},
      {"\r\rGET", 400, "not a valid HTTP request"},
      {"GET\r\n\r\n", 400, "not a valid HTTP request"},
      {"GET /v2 HTTP/2.0\r\n\r\n", 505, "HTTP/1.1"},
      {"GET /v2 HTTP/1.1\nHost: x\n\n", 505, "HTTP/1.1"},
      {"GET /v2 HTTP/1.1\r\nHost: x\r\nbad field: x\r\n\r\n", 400, "not a valid HTTP request"},
      {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "Content-Length"},
      {post + "Content-Length: -1\r\n\r\n", 400, "Content-Length"},
      {post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "Transfer-Encoding"},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "chunked"},
      {post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "chunk"},
      {post + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", 400, "chunk"},
      {"POST /v2 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.0"},
      {Post(kInferPath, "{}",
            "Inference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 2\r\n"),
       400, "more than one"},
      {post + "Content-Encoding: br\r\nContent-Length: 0\r\n\r\n", 415, "'br'"},
      {Post(kInferPath, "{}", "Inference-Header-Content-Length: x\r\n"), 400, "whole number"},
      {Post(kInferPath, "{}", "Inference-Header-Content-Length: 3\r\n"), 400, "body has 2 bytes"},
      {Post(kInferPath, ""), 400, "not valid JSON"},
      {"BREW /v2 HTTP/1.1\r\nHost: x\r\n\r\n", 501, "BREW"},
      {Get("/v2/nothing"), 404, "no such path"},
      {Get(kInferPath), 405, "POST"},
      {Post("/v2", "{}"), 405, "GET"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(ExpectRefused(test.request, test.status), HasSubstr(test.error)) << test.request;
  }
  EXPECT_EQ(Ask(Get(kInferPath)).Field("Allow"), "POST, OPTIONS");
}

}  // namespace
}  // namespace chairlift
