// Answers of /generate and /generate_stream, through a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <thread>

#include "engine/cell_models.h"
#include "graph/decoders/decoder_models.h"
#include "server/server_fixture.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;

constexpr char kGeneratePath[] = "/v2/models/identity/generate";
constexpr char kStreamPath[] = "/v2/models/identity/generate_stream";
constexpr char kBody[] = R"({"id":"r1","x":[1.5,-2]})";

InferPart Part(int64_t row, int64_t first, std::initializer_list<float> steps) {
  const Shape shape{static_cast<int64_t>(steps.size())};
  return {.row = row, .first = first, .outputs = {{"y", Tensor::Of<float>(shape, steps)}}};
}

// What an event says.
json Event(const std::string& chunk) {
  EXPECT_TRUE(chunk.starts_with("data: ")) << chunk;
  EXPECT_TRUE(chunk.ends_with("\n\n")) << chunk;
  return json::parse(chunk.substr(6), nullptr, false);
}

TEST_F(ServerTest, GeneratesInOnePiece) {
  Serve();
  const HttpAnswer answer = Ask(Post(kGeneratePath, kBody));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.Field("Content-Type"), "application/json");
  EXPECT_EQ(answer.body, R"({"id":"r1","model_name":"identity","model_version":"1","y":[1.5,-2]})");
  EXPECT_EQ(engine_->last_request().inputs[0].tensor.shape(), Shape({1, 2}));
  EXPECT_FALSE(engine_->last_request().on_parts);
  const HttpAnswer versioned =
      Ask(Post("/v2/models/identity/versions/1/generate", R"({"x":[[1,2],[3,4]]})"));
  EXPECT_EQ(versioned.body, R"({"model_name":"identity","model_version":"1","y":[[1,2],[3,4]]})");
  EXPECT_EQ(engine_->last_request().version, "1");
}

TEST_F(ServerTest, EventsComeWhileTheRequestRuns) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody));
  engine_->AwaitRequests(1);
  engine_->Tell(Part(0, 0, {1.5}));
  const HttpAnswer head = client.ReadHead();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Field("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(head.Field("Transfer-Encoding"), "chunked");
  EXPECT_EQ(head.Field("Content-Length"), "");
  EXPECT_EQ(Event(client.ReadChunk()), json({{"id", "r1"},
                                             {"model_name", "identity"},
                                             {"model_version", "1"},
                                             {"parameters", {{"row", 0}, {"first", 0}}},
                                             {"y", {1.5}}}));
  engine_->Tell(Part(0, 1, {-2, 3}));
  const json second = Event(client.ReadChunk());
  EXPECT_EQ(second["y"], json({-2.0, 3.0}));
  EXPECT_EQ(second["parameters"]["first"], 1);
  EXPECT_THAT(Metrics(), HasSubstr("chairlift_http_requests_in_flight 1"));
  engine_->Release();
  EXPECT_EQ(client.ReadChunk(), "");  // all of y has come: no event more
  EXPECT_THAT(Metrics(), HasSubstr("chairlift_http_requests_in_flight 0"));
}

TEST_F(ServerTest, WhatDidNotComeInPartsComesLast) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody));
  engine_->AwaitRequests(1);
  InferPart part = Part(0, 0, {1});
  part.outputs[0].name = "other";
  engine_->Tell(part);
  engine_->Release();
  client.ReadHead();
  EXPECT_EQ(Event(client.ReadChunk())["other"], json::array({1.0}));
  const json last = Event(client.ReadChunk());
  EXPECT_EQ(last["y"], json({1.5, -2.0}));
  EXPECT_FALSE(last.contains("parameters"));
  EXPECT_EQ(client.ReadChunk(), "");
}

TEST_F(ServerTest, AModelWithoutPartsStreamsOneEvent) {
  for (const auto how : {FakeEngine::Answer::kOnCallersThread, FakeEngine::Answer::kOnOwnThread}) {
    Serve(how);
    HttpClient client(server_->http_port());
    client.Send(Post(kStreamPath, kBody));
    EXPECT_EQ(client.ReadHead().status, 200);
    EXPECT_EQ(Event(client.ReadChunk())["y"], json({1.5, -2.0}));
    EXPECT_EQ(client.ReadChunk(), "");
  }
}

TEST_F(ServerTest, RequestsMayFollowAStreamAtOnce) {
  Serve();
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody) + Post(kInferPath, kInferBody) + Post(kStreamPath, kBody));
  for (const bool stream : {true, false, true}) {
    if (!stream) {
      EXPECT_EQ(client.Read().body, kInferAnswer);
      continue;
    }
    EXPECT_EQ(client.ReadHead().status, 200);
    EXPECT_EQ(Event(client.ReadChunk())["id"], "r1");
    EXPECT_EQ(client.ReadChunk(), "");
  }
}

TEST_F(ServerTest, AFailureBeforeTheFirstEventHasItsStatus) {
  Serve();
  engine_->set_status(Unavailable("not now"));
  const HttpAnswer answer = Ask(Post(kStreamPath, kBody));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(ErrorOf(answer), "not now");
}

TEST_F(ServerTest, AFailureInTheMiddleIsAnEvent) {
  Serve(FakeEngine::Answer::kWhenReleased);
  engine_->set_status(absl::DeadlineExceededError("too late"));
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody));
  engine_->AwaitRequests(1);
  engine_->Tell(Part(0, 0, {1}));
  engine_->Release();
  client.ReadHead();
  client.ReadChunk();
  EXPECT_EQ(Event(client.ReadChunk()), json::parse(R"({"error":"too late"})"));
  EXPECT_EQ(client.ReadChunk(), "");
  client.Send(Get("/v2/health/live"));
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(ServerTest, ANumberThatJsonCannotCarryEndsTheEvents) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody));
  engine_->AwaitRequests(1);
  engine_->Tell(Part(0, 0, {1}));
  engine_->Tell(Part(0, 1, {std::numeric_limits<float>::infinity()}));
  engine_->Tell(Part(0, 2, {3}));
  engine_->Release();
  client.ReadHead();
  client.ReadChunk();
  EXPECT_THAT(Event(client.ReadChunk())["error"].get<std::string>(), HasSubstr("NaN or infinite"));
  EXPECT_EQ(client.ReadChunk(), "");
}

TEST_F(ServerTest, AClientThatLeavesAStreamCancelsIt) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody));
  engine_->AwaitRequests(1);
  engine_->Tell(Part(0, 0, {1}));
  client.ReadHead();
  client.Close();
  engine_->AwaitCancelled(1);
}

TEST_F(ServerTest, HttpOneZeroGetsEventsUntilTheConnectionCloses) {
  Serve();
  HttpClient client(server_->http_port());
  client.Send(fmt::format("POST {} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", kStreamPath,
                          std::strlen(kBody), kBody));
  const HttpAnswer head = client.ReadHead();
  EXPECT_EQ(head.Field("Transfer-Encoding"), "");
  EXPECT_EQ(head.Field("Connection"), "close");
  EXPECT_EQ(Event(client.ReadToEnd())["y"], json({1.5, -2.0}));
}

TEST_F(ServerTest, AReaderThatIsSlowHoldsNobodyUp) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody));
  engine_->AwaitRequests(1);
  // Far more than sockets hold: Tell() returns all the same.
  constexpr int kParts = 100;
  for (int i = 0; i < kParts; ++i) {
    Tensor steps = Tensor::Allocate(DType::kInt64, {1, 20000});
    std::fill_n(steps.data<int64_t>(), steps.size(), 123456789 + i);
    engine_->Tell({.row = 0, .first = i, .outputs = {{"y", steps}}});
  }
  engine_->Release();
  client.ReadHead();
  for (int i = 0; i < kParts; ++i) {
    const json event = Event(client.ReadChunk());
    ASSERT_EQ(event["parameters"]["first"], i);
    ASSERT_EQ(event["y"][0][19999], 123456789 + i);
  }
  EXPECT_EQ(client.ReadChunk(), "");
}

TEST_F(ServerTest, AStreamThatNobodyReadsIsCancelledBeyondTheBudget) {
  ServerLimits limits;
  limits.max_buffered_bytes = 1 << 20;
  Serve(FakeEngine::Answer::kWhenReleased, limits);
  HttpClient client(server_->http_port());
  client.Send(Post(kStreamPath, kBody));
  engine_->AwaitRequests(1);
  Tensor steps = Tensor::Allocate(DType::kInt64, {1, 20000});
  std::fill_n(steps.data<int64_t>(), steps.size(), 123456789);
  for (int i = 0; i < 100; ++i) engine_->Tell({.first = i, .outputs = {{"y", steps}}});
  engine_->AwaitCancelled(1);
}

// A chain of LSTM steps over a real engine.
class RealStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteFile(folder_ / "m/1/step.onnx", testing::EncoderCell().Bytes());
    testing::WriteFile(folder_ / "m/model.yaml", R"(
cells: {step: {}}
unfold:
  chain:
    cell: step
    tokens: {input: token, request: tokens}
    lengths: lengths
    states: [{input: h, output: h_next}, {input: c, output: c_next}]
    outputs:
      - {name: states, output: h_next, at: every_step}
      - {name: memory, output: c_next}
)");
    engine_ = *Engine::Create({.workers = 2});
    ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
    const Status loaded = engine_->LoadFromRepository("m");
    ASSERT_TRUE(loaded.ok()) << loaded;
    ServerOptions options;
    options.http_port = 0;
    options.metrics_port = 0;
    auto server = Server::Start(*engine_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  testing::TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

TEST_F(RealStreamTest, EventsTogetherAreTheAnswer) {
  HttpClient client(server_->http_port());
  const std::string body = R"({"tokens":[[1,2,3,4,5,6,7],[8,7,6,5,4,3,2]],"lengths":[7,4]})";
  client.Send(Post("/v2/models/m/generate", body));
  const json whole = json::parse(client.Read().body);
  EXPECT_EQ(whole["states"].size(), 2u);
  client.Send(Post("/v2/models/m/generate_stream", body));
  EXPECT_EQ(client.ReadHead().status, 200);
  std::map<int, json> rows;
  json last;
  std::string chunk;
  while (!(chunk = client.ReadChunk()).empty()) {
    ASSERT_NE(chunk, "broken");
    // One chunk may hold several events.
    for (size_t at = 0; at < chunk.size();) {
      const size_t end = chunk.find("\n\n", at) + 2;
      const json event = Event(chunk.substr(at, end - at));
      at = end;
      if (!event.contains("parameters")) {
        last = event;
        continue;
      }
      json& row = rows[event["parameters"]["row"]];
      EXPECT_EQ(event["parameters"]["first"], row.size());
      for (const json& step : event["states"]) row.push_back(step);
    }
  }
  EXPECT_EQ(last["memory"], whole["memory"]);
  EXPECT_FALSE(last.contains("states"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], whole["states"][0]);
  ASSERT_EQ(rows[1].size(), 4u);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(rows[1][step], whole["states"][1][step]);
}

TEST_F(RealStreamTest, AModelThatGeneratesSendsItsTokensOneByOne) {
  testing::WriteFile(folder_ / "decoder/1/model.onnx", testing::LlamaModel());
  ASSERT_TRUE(engine_->LoadFromRepository("decoder").ok());
  HttpClient client(server_->http_port());
  const std::string body = R"({"input_ids":[5,6,7],"parameters":{"max_tokens":6}})";
  client.Send(Post("/v2/models/decoder/generate", body));
  const json whole = json::parse(client.Read().body);
  ASSERT_EQ(whole["output_ids"].size(), 6u) << whole;
  client.Send(Post("/v2/models/decoder/generate_stream", body));
  EXPECT_EQ(client.ReadHead().status, 200);
  json tokens = json::array();
  std::string chunk;
  while (!(chunk = client.ReadChunk()).empty()) {
    for (size_t at = 0; at < chunk.size();) {
      const size_t end = chunk.find("\n\n", at) + 2;
      const json event = Event(chunk.substr(at, end - at));
      at = end;
      EXPECT_EQ(event["parameters"]["first"], tokens.size());
      for (const json& token : event["output_ids"]) tokens.push_back(token);
    }
  }
  EXPECT_EQ(tokens, whole["output_ids"]);
  const HttpAnswer wrong = client.Ask(
      Post("/v2/models/decoder/generate", R"({"input_ids":[5],"parameters":{"max_tokens":0}})"));
  EXPECT_EQ(wrong.status, 400);
  EXPECT_THAT(wrong.body, HasSubstr("max_tokens is 0"));
}

TEST_F(RealStreamTest, StreamsOfManyClientsRunSideBySide) {
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([this, c] {
      HttpClient client(server_->http_port());
      std::string tokens;
      for (int i = 0; i < 20 + c; ++i) tokens += fmt::format("{}{}", i == 0 ? "" : ",", i % 9);
      const std::string body = fmt::format(R"({{"tokens":[{}],"lengths":{}}})", tokens, 20 + c);
      for (int round = 0; round < 5; ++round) {
        client.Send(Post("/v2/models/m/generate_stream", body));
        EXPECT_EQ(client.ReadHead().status, 200);
        std::string all, chunk;
        while (!(chunk = client.ReadChunk()).empty() && chunk != "broken") all += chunk;
        EXPECT_EQ(chunk, "");
        // Steps of one task come in one event: as many as a slice of time holds.
        size_t steps = 0;
        for (size_t at = 0, end = 0; at < all.size(); at = end) {
          end = all.find("\n\n", at) + 2;
          const json event = Event(all.substr(at, end - at));
          if (!event.contains("states")) continue;
          EXPECT_EQ(event["parameters"]["first"], steps);
          steps += event["states"].size();
        }
        EXPECT_EQ(steps, 20u + static_cast<size_t>(c));
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace chairlift
