#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/protocol/metrics.h"
#include "server/server_fixture.h"

namespace chairlift {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ServerTest, InfersOverJson) {
  for (const auto how : {FakeEngine::Answer::kOnCallersThread, FakeEngine::Answer::kOnOwnThread}) {
    Serve(how);
    const HttpAnswer answer = Ask(Post(kInferPath, kInferBody));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, kInferAnswer);
    EXPECT_EQ(answer.Field("Content-Type"), "application/json");
    EXPECT_EQ(answer.Field("Inference-Header-Content-Length"), "");
    EXPECT_EQ(engine_->last_request().model, "identity");
    EXPECT_EQ(engine_->last_request().version, "");
  }
}

TEST_F(ServerTest, VersionAndJsonLengthMayBeGiven) {
  Serve();
  const std::string length =
      "Inference-Header-Content-Length: " + std::to_string(sizeof(kInferBody) - 1) + "\r\n";
  const HttpAnswer answer = Ask(Post("/v2/models/identity/versions/1/infer", kInferBody, length));
  EXPECT_EQ(answer.body, kInferAnswer);
  EXPECT_EQ(engine_->last_request().version, "1");
}

TEST_F(ServerTest, SequencesAreNamedInTheParameters) {
  Serve();
  const auto ask = [this](const std::string& parameters) {
    std::string body = kInferBody;
    body.insert(1, fmt::format(R"("parameters":{{{}}},)", parameters));
    return Ask(Post(kInferPath, body));
  };
  EXPECT_EQ(ask(R"("sequence_id":42,"sequence_start":true)").status, 200);
  EXPECT_EQ(engine_->last_request().sequence, "42");
  EXPECT_TRUE(engine_->last_request().sequence_start);
  EXPECT_FALSE(engine_->last_request().sequence_end);
  EXPECT_EQ(ask(R"("sequence_end":true,"sequence_id":"a b")").status, 200);
  EXPECT_EQ(engine_->last_request().sequence, "a b");
  EXPECT_TRUE(engine_->last_request().sequence_end);
  // What clients without a sequence send.
  EXPECT_EQ(ask(R"("sequence_id":0,"sequence_start":false,"sequence_end":false)").status, 200);
  EXPECT_EQ(engine_->last_request().sequence, "");

  for (const char* wrong :
       {R"("sequence_start":true)", R"("sequence_id":0,"sequence_end":true)", R"("sequence_id":-1)",
        R"("sequence_id":[1])", R"("sequence_id":7,"sequence_start":1)"}) {
    const HttpAnswer answer = ask(wrong);
    EXPECT_EQ(answer.status, 400) << wrong;
    EXPECT_THAT(answer.body, HasSubstr("sequence_"));
  }
  EXPECT_EQ(ask(fmt::format(R"("sequence_id":"{}")", std::string(257, 'x'))).status, 400);
}

std::string BinaryJson(size_t elements, const char* parameters) {
  return fmt::format(R"({{"inputs":[{{"name":"x","datatype":"FP32","shape":[1,{}],)"
                     R"("parameters":{{"binary_data_size":{}}}}}],"parameters":{{{}}}}})",
                     elements, elements * sizeof(float), parameters);
}

TEST_F(ServerTest, InfersOverBinaryTensorsOfEverySize) {
  Serve();
  HttpClient client(server_->http_port());
  for (const size_t elements : {0, 1, 7, 1000, 3000, 100'000, 2'000'001}) {
    std::vector<float> values(elements);
    for (size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(i) * 0.25f;
    const std::string bytes(reinterpret_cast<const char*>(values.data()), elements * sizeof(float));
    const std::string json_part = BinaryJson(elements, "\"binary_data_output\":true");
    const HttpAnswer answer =
        client.Ask(Post(kInferPath, json_part + bytes,
                        fmt::format("Inference-Header-Content-Length: {}\r\n", json_part.size())));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.Field("Content-Type"), "application/octet-stream");
    const size_t head = std::stoul(answer.Field("Inference-Header-Content-Length"));
    const json parsed = json::parse(answer.body.substr(0, head));
    EXPECT_EQ(parsed["outputs"][0]["parameters"]["binary_data_size"], bytes.size());
    EXPECT_TRUE(answer.body.substr(head) == bytes) << elements;
  }
}

TEST_F(ServerTest, LargeJsonAnswersComeWhole) {
  Serve();
  constexpr size_t kElements = 200'000;
  const std::string bytes(kElements * sizeof(float), '\0');
  const std::string json_part = BinaryJson(kElements, "");
  const HttpAnswer answer =
      Ask(Post(kInferPath, json_part + bytes,
               fmt::format("Inference-Header-Content-Length: {}\r\n", json_part.size())));
  EXPECT_EQ(json::parse(answer.body)["outputs"][0]["data"].size(), kElements);
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  for (const auto how : {FakeEngine::Answer::kOnCallersThread, FakeEngine::Answer::kOnOwnThread}) {
    Serve(how);
    HttpClient client(server_->http_port());
    std::string burst;
    constexpr int kRequests = 200;
    for (int i = 0; i < kRequests; ++i) {
      std::string body = kInferBody;
      body.replace(body.find("r1"), 2, fmt::format("r{}", i));
      burst += Post(kInferPath, body) + Get("/v2/health/live");
    }
    ASSERT_TRUE(client.Send(burst));
    for (int i = 0; i < kRequests; ++i) {
      const HttpAnswer answer = client.Read();
      ASSERT_EQ(answer.status, 200);
      EXPECT_EQ(json::parse(answer.body)["id"], fmt::format("r{}", i));
      EXPECT_EQ(client.Read().status, 200);
    }
  }
}

TEST_F(ServerTest, RequestsMayComeByteByByte) {
  Serve();
  HttpClient client(server_->http_port());
  const std::string chunked =
      "POST " + std::string(kInferPath) +
      " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1e;x=y\r\n" +
      std::string(kInferBody).substr(0, 30) + "\r\n" +
      fmt::format("{:x}", sizeof(kInferBody) - 31) + "\r\n" + std::string(kInferBody).substr(30) +
      "\r\n0\r\nTrailer: x\r\n\r\n";
  for (const std::string& request :
       {Post(kInferPath, kInferBody), chunked, Post(kInferPath, kInferBody)}) {
    for (const char byte : request) ASSERT_TRUE(client.Send({&byte, 1}));
    EXPECT_EQ(client.Read().body, kInferAnswer);
  }
}

TEST_F(ServerTest, ChunkedBodiesGrowPastTheirFirstBuffer) {
  Serve();
  constexpr size_t kElements = 60'000;
  const std::string json_part = BinaryJson(kElements, "\"binary_data_output\":true");
  const std::string body = json_part + std::string(kElements * sizeof(float), '\x01');
  std::string request =
      "POST " + std::string(kInferPath) + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" +
      fmt::format("Inference-Header-Content-Length: {}\r\n\r\n", json_part.size());
  for (size_t at = 0; at < body.size(); at += 5000) {
    const std::string piece = body.substr(at, 5000);
    request += fmt::format("{:x}\r\n", piece.size()) + piece + "\r\n";
  }
  request += "0\r\n\r\n";
  HttpClient client(server_->http_port());
  const HttpAnswer answer = client.Ask(request);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const size_t head = std::stoul(answer.Field("Inference-Header-Content-Length"));
  EXPECT_EQ(answer.body.size() - head, kElements * sizeof(float));
  EXPECT_EQ(client.Ask(Post(kInferPath, kInferBody)).body, kInferAnswer);
}

TEST_F(ServerTest, ExpectContinueIsMet) {
  Serve();
  HttpClient client(server_->http_port());
  std::string request = Post(kInferPath, kInferBody, "Expect: 100-continue\r\n");
  const size_t body = request.find("\r\n\r\n") + 4;
  client.Send(request.substr(0, body));
  EXPECT_EQ(client.Read().status, 100);
  client.Send(request.substr(body));
  EXPECT_EQ(client.Read().body, kInferAnswer);
  EXPECT_EQ(Ask(Post(kInferPath, "{}", "Expect: the-unexpected\r\n")).status, 417);
}

TEST_F(ServerTest, ConnectionsStayOpenAsTheClientWishes) {
  Serve();
  HttpClient keep(server_->http_port());
  EXPECT_EQ(keep.Ask(Get("/v2")).Field("Connection"), "");
  EXPECT_EQ(keep.Ask(Get("/v2")).status, 200);
  const HttpAnswer last = keep.Ask("GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(last.Field("Connection"), "close");
  EXPECT_TRUE(keep.AtEnd());

  HttpClient old(server_->http_port());
  EXPECT_EQ(old.Ask("GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").Field("Connection"),
            "keep-alive");
  EXPECT_EQ(old.Ask("GET /v2 HTTP/1.0\r\n\r\n").Field("Connection"), "close");
  EXPECT_TRUE(old.AtEnd());
}

TEST_F(ServerTest, HeadHasTheHeadOfGetAlone) {
  Serve();
  HttpClient client(server_->http_port());
  const std::string length = client.Ask(Get("/v2")).Field("Content-Length");
  client.Send("HEAD /v2 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.Read(true).Field("Content-Length"), length);
  EXPECT_EQ(client.Ask(Get("/v2/health/live")).status, 200);
}

TEST_F(ServerTest, MetadataConfigAndStatisticsHaveTritonsForm) {
  Serve();
  const json server = json::parse(Ask(Get("/v2")).body);
  EXPECT_EQ(server["name"], "chairlift");
  EXPECT_THAT(server["extensions"], ::testing::Contains("binary_tensor_data"));

  const json model = json::parse(Ask(Get("/v2/models/identity")).body);
  EXPECT_EQ(model, json::parse(R"({"name":"identity","versions":["1"],"platform":"onnx_chairlift",
      "inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],
      "outputs":[{"name":"y","datatype":"FP32","shape":[-1,4]}]})"));

  const json config = json::parse(Ask(Get("/v2/models/identity/versions/1/config")).body);
  EXPECT_EQ(config["max_batch_size"], 8);
  EXPECT_EQ(config["input"][0]["data_type"], "TYPE_FP32");
  EXPECT_EQ(config["input"][0]["dims"], json::array({4}));
  EXPECT_EQ(config["dynamic_batching"]["max_queue_delay_microseconds"], 100);

  for (const char* path : {"/v2/models/stats", "/v2/models/identity/stats"}) {
    Ask(Post(kInferPath, kInferBody));
    const json stats = json::parse(Ask(Get(path)).body)["model_stats"][0];
    EXPECT_EQ(stats["inference_stats"]["queue"]["count"],
              std::string(path).ends_with("identity/stats") ? 2 : 1);
    EXPECT_EQ(stats["inference_stats"]["cache_hit"]["count"], 4);
    EXPECT_EQ(stats["inference_stats"]["cache_miss"]["ns"], 60);
    EXPECT_EQ(stats["batch_stats"][0]["batch_size"], 2);
    EXPECT_EQ(stats["batch_stats"][0]["compute_infer"]["ns"], 400);
  }
}

// Before that, what is not there yet may still come.
TEST_F(ServerTest, UntilItIsSetReadyItLivesButIsNotReady) {
  FakeEngine engine(FakeEngine::Answer::kOnOwnThread);
  auto server = Server::Start(engine, {.http_port = 0, .metrics_port = -1, .ready = false});
  ASSERT_TRUE(server.ok()) << server.status();
  HttpClient client((*server)->http_port());
  const std::string ready = Get("/v2/health/ready");
  const std::string unknown = Post("/v2/models/unknown/infer", kInferBody);
  EXPECT_EQ(client.Ask(Get("/v2/health/live")).status, 200);
  EXPECT_EQ(client.Ask(ready).status, 503);
  for (const std::string& request :
       {unknown, Get("/v2/models/unknown"), Get("/v2/models/unknown/ready")}) {
    const HttpAnswer answer = client.Ask(request);
    EXPECT_EQ(answer.status, 503) << request;
    EXPECT_THAT(answer.body, HasSubstr("loading"));
  }
  EXPECT_EQ(client.Ask(Get("/v2/nothing")).status, 404);
  EXPECT_EQ(client.Ask(Post(kInferPath, kInferBody)).status, 200);  // what is loaded answers
  (*server)->SetReady();
  EXPECT_EQ(client.Ask(ready).status, 200);
  EXPECT_EQ(client.Ask(unknown).status, 404);
}

TEST_F(ServerTest, APortThatIsTakenIsNamedByItsOption) {
  Serve();
  const int taken = server_->http_port();
  const auto refusal = [&](int http, int metrics) {
    return Server::Start(*engine_, {.http_port = http, .metrics_port = metrics})
        .status()
        .ToString();
  };
  EXPECT_THAT(refusal(taken, -1), HasSubstr("http_port: cannot listen on 127.0.0.1:"));
  EXPECT_THAT(refusal(0, taken), HasSubstr("metrics_port: cannot listen on 127.0.0.1:"));
}

TEST_F(ServerTest, HealthTellsWhatIsReady) {
  Serve();
  EXPECT_EQ(Ask(Get("/v2/health/live")).status, 200);
  EXPECT_EQ(Ask(Get("/v2/health/ready")).status, 200);
  EXPECT_EQ(Ask(Get("/v2/models/identity/ready")).status, 200);
  const HttpAnswer broken = Ask(Get("/v2/models/broken/ready"));
  EXPECT_EQ(broken.status, 503);
  EXPECT_THAT(ErrorOf(broken), HasSubstr("no such operator"));
  EXPECT_EQ(Ask(Get("/v2/models/nobody/ready")).status, 404);
}

TEST_F(ServerTest, TheConfigurationSaysThatRequestsAreOfSequences) {
  Serve();
  engine_->set_model([](ModelMetadata& model) { model.sequences_only = true; });
  EXPECT_TRUE(
      json::parse(Ask(Get("/v2/models/identity/config")).body).contains("sequence_batching"));
}

// As it was given, so that a client may change it and load the model with it.
TEST_F(ServerTest, TheConfigurationIsShownAsItWasGiven) {
  Serve();
  engine_->set_model([](ModelMetadata& model) {
    model.max_rows = 8;
    model.inputs[0].shape = {-1, 2, 2};
    model.triton_config =
        R"({"name":"other","platform":"onnxruntime_onnx","max_batch_size":8,)"
        R"("input":[{"name":"x","data_type":"TYPE_FP32","dims":[2,2],"reshape":{"shape":[4]}}],)"
        R"("sequence_batching":{"control_input":[{"name":"START"}]}})";
  });
  const json config = json::parse(Ask(Get("/v2/models/identity/config")).body);
  EXPECT_EQ(config["name"], "identity");
  EXPECT_EQ(config["max_batch_size"], 8);
  EXPECT_EQ(config["input"][0]["dims"], json::parse("[2,2]"));
  EXPECT_EQ(config["input"][0]["reshape"]["shape"], json::parse("[4]"));
  EXPECT_EQ(config["sequence_batching"]["control_input"][0]["name"], "START");
  EXPECT_FALSE(config.contains("dynamic_batching"));
  engine_->set_model([](ModelMetadata& model) {
    model.triton_config = R"({"platform":"ensemble","ensemble_scheduling":{"step":[]}})";
  });
  EXPECT_EQ(json::parse(Ask(Get("/v2/models/identity/config")).body)["platform"], "ensemble");
}

// Whether or not requests share batches.
TEST_F(ServerTest, MetadataHasTheBatchThatTheConfigurationDeclares) {
  Serve();
  const auto shown = [&](bool batches, int max_rows) {
    engine_->set_model([=](ModelMetadata& model) {
      model.batches = batches;
      model.max_rows = max_rows;
      model.inputs[0].shape = {-1, 4};
    });
    const json config = json::parse(Ask(Get("/v2/models/identity/config")).body);
    return std::pair(config["max_batch_size"].get<int>(), config["input"][0]["dims"].dump());
  };
  for (const bool batches : {false, true}) {
    EXPECT_EQ(shown(batches, 8), std::pair(8, std::string("[4]")));
    EXPECT_EQ(shown(batches, 0), std::pair(0, std::string("[-1,4]")));
  }
}

TEST_F(ServerTest, TheRepositoryIsListedLoadedAndUnloaded) {
  Serve();
  EXPECT_EQ(json::parse(Ask(Post("/v2/repository/index", "")).body).size(), 2);
  const json ready = json::parse(Ask(Post("/v2/repository/index", R"({"ready":true})")).body);
  EXPECT_EQ(ready,
            json::parse(R"([{"name":"identity","version":"1","state":"READY","reason":""}])"));
  EXPECT_EQ(Ask(Post("/v2/repository/index", "[]")).status, 400);
  EXPECT_EQ(Ask(Post("/v2/repository/models/identity/load", "")).status, 200);
  EXPECT_EQ(Ask(Post("/v2/repository/models/identity/unload",
                     R"({"parameters":{"unload_dependents":false}})"))
                .status,
            200);
  EXPECT_EQ(Ask(Post("/v2/repository/models/nobody/load", "{}")).status, 404);
  EXPECT_EQ(
      Ask(Post("/v2/repository/models/identity/load", R"({"parameters":{"config":"{}"}})")).status,
      200);
  for (const char* wrong : {R"({"parameters":{"config":{}}})", R"({"parameters":{"config":""}})",
                            R"({"parameters":{"file:1/model.onnx":"AA=="}})"}) {
    EXPECT_EQ(Ask(Post("/v2/repository/models/identity/load", wrong)).status, 400) << wrong;
  }
  EXPECT_THAT(engine_->repository_calls(),
              ElementsAre("load identity", "unload identity", "load nobody", "load identity{}"));
}

TEST_F(ServerTest, ClientsLoadAndUnloadOnlyWhereTheyMay) {
  Serve(FakeEngine::Answer::kOnOwnThread, {}, {}, /*model_control=*/false);
  for (const char* call : {"load", "unload"}) {
    const HttpAnswer answer = Ask(Post(fmt::format("/v2/repository/models/identity/{}", call), ""));
    EXPECT_EQ(answer.status, 403);
    EXPECT_THAT(ErrorOf(answer), HasSubstr("--model-control-mode explicit"));
  }
  EXPECT_THAT(engine_->repository_calls(), ElementsAre());
  EXPECT_EQ(Ask(Post("/v2/repository/index", "")).status, 200);
}

TEST_F(ServerTest, EngineErrorsHaveTheirStatus) {
  Serve();
  const struct {
    Status status;
    int http;
  } kCases[] = {
      {absl::InvalidArgumentError("input 'x': bad shape"), 400},
      {absl::NotFoundError("no such model"), 404},
      {absl::ResourceExhaustedError("queue full"), 503},
      {absl::DeadlineExceededError("request timeout expired"), 503},
      {absl::UnavailableError("loading"), 503},
      {absl::UnimplementedError("no such operator"), 400},
      {absl::InternalError("a defect"), 500},
  };
  HttpClient client(server_->http_port());
  for (const auto& test : kCases) {
    engine_->set_status(test.status);
    const HttpAnswer answer = client.Ask(Post(kInferPath, kInferBody));
    EXPECT_EQ(answer.status, test.http);
    EXPECT_EQ(ErrorOf(answer), Message(test.status));
    EXPECT_EQ(answer.head.find("Retry-After: 1") != std::string::npos, test.http == 503);
  }
  engine_->set_status(absl::OkStatus());
  EXPECT_EQ(client.Ask(Post("/v2/models/nobody/infer", kInferBody)).status, 404);
  EXPECT_EQ(client.Ask(Post(kInferPath, "{")).status, 400);
  EXPECT_EQ(client.Ask(Post(kInferPath, kInferBody)).status, 200);
}

TEST_F(ServerTest, NotANumberInJsonIsAnErrorThatNamesTheWayOut) {
  Serve();
  engine_->set_output(Tensor::Of<float>({1}, {std::numeric_limits<float>::quiet_NaN()}));
  const HttpAnswer answer = Ask(Post(kInferPath, kInferBody));
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(ErrorOf(answer), HasSubstr("binary_data"));
}

TEST_F(ServerTest, ADisconnectedClientsRequestIsCancelled) {
  Serve(FakeEngine::Answer::kWhenReleased);
  {
    HttpClient client(server_->http_port());
    client.Send(Post(kInferPath, kInferBody));
    engine_->AwaitRequests(1);
  }
  engine_->AwaitCancelled(1);
  EXPECT_THAT(Metrics(), HasSubstr("chairlift_http_requests_disconnected_total 1"));
}

TEST_F(ServerTest, AResetClientsRequestIsCancelled) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient client(server_->http_port());
  client.Send(Post(kInferPath, kInferBody));
  engine_->AwaitRequests(1);
  client.Reset();
  engine_->AwaitCancelled(1);
}

TEST_F(ServerTest, AHalfClosedClientGetsItsAnswers) {
  Serve();
  HttpClient client(server_->http_port());
  client.Send(Post(kInferPath, kInferBody) + Get("/v2/nothing") + Post(kInferPath, kInferBody));
  client.EndSending();
  EXPECT_EQ(client.Read().body, kInferAnswer);
  EXPECT_EQ(client.Read().status, 404);
  EXPECT_EQ(client.Read().body, kInferAnswer);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(ServerTest, AHalfClosedClientThatWaitsLongGetsItsAnswer) {
  ServerLimits limits;
  limits.closed_client_probe = std::chrono::milliseconds(1);
  Serve(FakeEngine::Answer::kWhenReleased, limits);
  HttpClient client(server_->http_port());
  client.Send(Post(kInferPath, kInferBody));
  client.EndSending();
  while (!client.HasAnswer()) Ask(Get("/v2"));  // the probe has come: the head's first bytes
  engine_->Release();
  const HttpAnswer answer = client.Read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, kInferAnswer);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(ServerTest, AHalfClosedClientWithoutAWholeRequestIsClosed) {
  Serve();
  for (const std::string& part :
       {std::string(), std::string("GET /v2"), Post(kInferPath, kInferBody).substr(0, 120)}) {
    HttpClient client(server_->http_port());
    client.Send(part);
    client.EndSending();
    EXPECT_TRUE(client.AtEnd());
  }
}

// A text request asks the tokenizer and the model, and is one request of the model.
TEST_F(ServerTest, MetricsCountARequestOfSeveralPartsOnce) {
  Serve();
  ModelStatistics embed;
  embed.name = "identity/embed";
  embed.version = "1";
  embed.success.count = 5;
  embed.fail.count = 2;
  embed.failures["queue_full"] = 2;
  embed.running = 1;
  embed.inference_count = 5;
  embed.batches[5] = {1, 100};
  ModelStatistics tokenizer = embed;
  tokenizer.name = "identity/tokenizer";
  tokenizer.steps = {.success = 4, .fail = 2, .failures = {{"queue_full", 2}}, .running = 1};
  tokenizer.waiting = 3;
  tokenizer.queued_work = std::chrono::milliseconds(250);
  engine_->set_parts({embed, tokenizer});
  const std::string metrics = Metrics();
  const std::string labels = "{model=\"identity\",version=\"1\"";
  for (const std::string& line : {
           "chairlift_requests_total" + labels + ",outcome=\"success\"} 6\n",
           "chairlift_requests_total" + labels + ",outcome=\"failure\"} 2\n",
           "chairlift_request_failures_total" + labels + ",reason=\"queue_full\"} 2\n",
           "chairlift_step_requests_total" + labels + ",outcome=\"success\"} 0\n",
           "chairlift_requests_waiting" + labels + "} 3\n",
           "chairlift_requests_running" + labels + "} 1\n",
           "chairlift_queued_work_seconds" + labels + "} 0.25\n",
           "chairlift_rows_total" + labels + "} 0\n",
       }) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, Not(AnyOf(HasSubstr("part="), HasSubstr("rows=\"5\""))));
}

TEST_F(ServerTest, MetricsHaveTheNamesOfOtherServersOnRequest) {
  Serve();
  ModelStatistics writer;
  writer.name = "writer";
  writer.version = "2";
  writer.success = {3, 5000};
  writer.fail.count = 4;
  writer.failures = {{"queue_full", 2}, {"timeout", 1}, {"invalid", 1}};
  writer.compute_infer = {3, 2500};
  writer.inference_count = 6;
  writer.execution_count = 2;
  writer.waiting = 5;
  writer.generation = GenerationStatistics{.waiting = 5,
                                           .running = 7,
                                           .generation_tokens = 11,
                                           .blocks = 8,
                                           .blocks_used = 2,
                                           .first_token_seconds = {{0.5}, {1, 2}, 4}};
  engine_->set_parts({writer});
  EXPECT_THAT(Metrics(), Not(AnyOf(HasSubstr("nv_"), HasSubstr("vllm:"))));
  const std::string metrics = protocol::Metrics(*engine_, {.triton = true, .vllm = true}).Render();
  const std::string labels = "{model=\"writer\",version=\"2\"";
  const std::string of_vllm = "{model_name=\"writer\"";
  for (const std::string& line : {
           "nv_inference_request_success" + labels + "} 3\n",
           "nv_inference_request_failure" + labels + ",reason=\"REJECTED\"} 3\n",
           "nv_inference_request_failure" + labels + ",reason=\"OTHER\"} 1\n",
           "nv_inference_request_failure" + labels + ",reason=\"BACKEND\"} 0\n",
           "nv_inference_count" + labels + "} 6\n",
           "nv_inference_exec_count" + labels + "} 2\n",
           "nv_inference_request_duration_us" + labels + "} 5\n",
           "nv_inference_compute_infer_duration_us" + labels + "} 2.5\n",
           "nv_inference_pending_request_count" + labels + "} 5\n",
           "vllm:num_requests_running" + of_vllm + "} 7\n",
           "vllm:num_requests_waiting" + of_vllm + "} 5\n",
           "vllm:kv_cache_usage_perc" + of_vllm + "} 0.25\n",
           "vllm:generation_tokens_total" + of_vllm + "} 11\n",
           "vllm:time_to_first_token_seconds_bucket" + of_vllm + ",le=\"0.5\"} 1\n",
           "vllm:time_to_first_token_seconds_count" + of_vllm + "} 3\n",
           "chairlift_requests_total" + labels + ",outcome=\"success\"} 3\n",
       }) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics,
              HasSubstr("nv_cache_num_hits_per_model{model=\"identity\",version=\"1\"} 4"));
}

TEST_F(ServerTest, MetricsSpeakOfRequestsAndConnections) {
  Serve();
  HttpClient client(server_->http_port());
  client.Ask(Post(kInferPath, kInferBody));
  client.Ask(Get("/v2/nothing"));
  const std::string metrics = Metrics();
  for (const char* line :
       {"chairlift_requests_total{model=\"identity\",version=\"1\",outcome=\"success\"} 1\n",
        "chairlift_request_failures_total{model=\"identity\",version=\"1\",reason=\"timeout\"} 7\n",
        "chairlift_batches_total{model=\"identity\",version=\"1\",rows=\"2\"} 3\n",
        "chairlift_queue_duration_seconds_count{model=\"identity\",version=\"1\"} 1\n",
        "chairlift_compute_duration_seconds_bucket{model=\"identity\",version=\"1\",le=\"+Inf\"} "
        "1\n",
        "chairlift_batch_rows_sum{model=\"identity\",version=\"1\"} 1\n",
        "chairlift_padded_rows_total{model=\"identity\",version=\"1\"} 0\n",
        "chairlift_response_cache_lookups_total{model=\"identity\",version=\"1\",outcome=\"hit\"} "
        "4\n",
        "chairlift_response_cache_lookups_total{model=\"identity\",version=\"1\",outcome=\"miss\"} "
        "5\n",
        "chairlift_http_responses_total{code=\"200\"} 1\n",
        "chairlift_http_responses_total{code=\"404\"} 1\n", "chairlift_http_connections 1\n",
        "chairlift_http_requests_in_flight 0\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_EQ(HttpClient(server_->metrics_port()).Ask(Get("/v2")).status, 404);
  const HttpAnswer elsewhere = client.Ask(Get("/metrics"));
  EXPECT_EQ(elsewhere.status, 404);
  EXPECT_THAT(ErrorOf(elsewhere), HasSubstr(fmt::format("port {}", server_->metrics_port())));
}

TEST_F(ServerTest, DrainAnswersWhatIsInFlightAndRefusesTheRest) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient idle(server_->http_port());
  HttpClient busy(server_->http_port());
  ASSERT_EQ(idle.Ask(Get("/v2")).status, 200);
  busy.Send(Post(kInferPath, kInferBody));
  engine_->AwaitRequests(1);
  std::thread drain([this] { EXPECT_TRUE(server_->Drain(std::chrono::seconds(20)).ok()); });
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_FALSE(HttpClient(server_->http_port()).connected());
  engine_->Release();
  const HttpAnswer answer = busy.Read();
  EXPECT_EQ(answer.body, kInferAnswer);
  EXPECT_EQ(answer.Field("Connection"), "close");
  EXPECT_TRUE(busy.AtEnd());
  drain.join();
}

TEST_F(ServerTest, BeforeItDrainsItAnswersAllButIsNotReady) {
  Serve();
  HttpClient open(server_->http_port());
  ASSERT_EQ(open.Ask(Get("/v2")).status, 200);
  HttpClient silent(server_->http_port());  // has sent nothing
  server_->BeginDrain();
  for (const char* path : {"/v2/health/ready", "/v2/models/identity/ready"}) {
    const HttpAnswer ready = Ask(Get(path));
    EXPECT_EQ(ready.status, 503) << path;
    EXPECT_EQ(ErrorOf(ready), "the server is draining");
    EXPECT_EQ(ready.Field("Connection"), "close");
  }
  EXPECT_EQ(Ask(Get("/v2/health/live")).status, 200);
  HttpClient fresh(server_->http_port());
  for (HttpClient* client : {&open, &silent, &fresh}) {
    const HttpAnswer answer = client->Ask(Post(kInferPath, kInferBody));
    EXPECT_EQ(answer.body, kInferAnswer);
    EXPECT_EQ(answer.Field("Connection"), "close");
    EXPECT_TRUE(client->AtEnd());
    EXPECT_FALSE(client->was_reset());
  }
  EXPECT_THAT(Metrics(), HasSubstr("chairlift_http_responses_total"));
  EXPECT_TRUE(server_->Drain(std::chrono::seconds(20)).ok());
}

TEST_F(ServerTest, NoConnectionIsResetWhenItDrains) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient busy(server_->http_port());
  busy.Send(Post(kInferPath, kInferBody));
  engine_->AwaitRequests(1);
  HttpClient idle(server_->http_port());
  ASSERT_EQ(idle.Ask(Get("/v2")).status, 200);
  // Sent, and perhaps not accepted yet.
  std::vector<std::unique_ptr<HttpClient>> sent;
  for (int i = 0; i < 50; ++i) {
    sent.push_back(std::make_unique<HttpClient>(server_->http_port()));
    sent.back()->Send(Get("/v2/health/live"));
  }
  std::thread drain([this] { EXPECT_TRUE(server_->Drain(std::chrono::seconds(20)).ok()); });
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_FALSE(idle.was_reset());
  for (const auto& client : sent) {
    EXPECT_EQ(client->Read().status, 200);
    EXPECT_TRUE(client->AtEnd());
    EXPECT_FALSE(client->was_reset());
  }
  EXPECT_THAT(Metrics(), HasSubstr("chairlift_http_requests_in_flight 1\n"));
  engine_->Release();
  EXPECT_EQ(busy.Read().body, kInferAnswer);
  EXPECT_TRUE(busy.AtEnd());
  EXPECT_FALSE(busy.was_reset());
  drain.join();
}

TEST_F(ServerTest, ARequestThatComesTooSlowlyIsRefusedAtTheEnd) {
  Serve();
  HttpClient half(server_->http_port());
  half.Send("POST " + std::string(kInferPath) +
            " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n");
  ASSERT_EQ(half.Read().status, 100);
  half.Send("{");
  EXPECT_FALSE(server_->Drain(std::chrono::milliseconds(1)).ok());
  EXPECT_EQ(half.Read().status, 503);
  EXPECT_FALSE(half.was_reset());
}

TEST_F(ServerTest, DrainCutsOffWhatTakesTooLong) {
  Serve(FakeEngine::Answer::kWhenReleased);
  HttpClient busy(server_->http_port());
  busy.Send(Post(kInferPath, kInferBody));
  engine_->AwaitRequests(1);
  EXPECT_EQ(server_->Drain(std::chrono::milliseconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
  engine_->AwaitCancelled(1);
  EXPECT_EQ(busy.Read().status, 0);
}

TEST_F(ServerTest, MetricsAreOnTheHttpPortWhereThatIsAskedFor) {
  FakeEngine engine;
  ServerOptions options;
  options.http_port = 0;
  options.metrics_port = -1;
  for (const bool wanted : {false, true}) {
    options.http_metrics = wanted;
    const auto server = Server::Start(engine, options);
    ASSERT_TRUE(server.ok()) << server.status();
    const HttpAnswer answer = HttpClient((*server)->http_port()).Ask(Get("/metrics"));
    EXPECT_EQ(answer.status, wanted ? 200 : 404);
    EXPECT_THAT(answer.body, HasSubstr(wanted ? "chairlift_http_connections 1" : "--http-metrics"));
  }
}

TEST_F(ServerTest, ThePathsAndModelsAreListed) {
  Serve();
  const HttpAnswer answer = Ask(Get("/"));
  EXPECT_EQ(answer.status, 200);
  const json overview = json::parse(answer.body);
  EXPECT_EQ(overview["name"], "chairlift");
  EXPECT_EQ(overview["ready"], true);
  EXPECT_EQ(overview["models"], json::array({"identity"}));
  EXPECT_THAT(overview["paths"], ::testing::Contains("POST /v2/models/{model}/infer"));
  EXPECT_THAT(overview["documentation"], HasSubstr("docs/reference/http.md"));
}

TEST_F(ServerTest, WhatIsSentFromPagesOfOtherSitesChangesNothing) {
  Serve();
  const std::string path = "/v2/repository/models/identity/";
  for (const std::string& fields :
       {std::string("Host: evil.example\r\n"),
        std::string("Host: evil.example\r\nOrigin: http://evil.example\r\n"),
        std::string("Host: localhost\r\nOrigin: http://evil.example\r\n"),
        std::string("Host: 127.0.0.1\r\nOrigin: null\r\n")}) {
    for (const char* call : {"load", "unload"}) {
      HttpClient client(server_->http_port());
      const HttpAnswer refused = client.Ask("POST " + path + call + " HTTP/1.1\r\n" + fields +
                                            "Content-Length: 0\r\n\r\n");
      EXPECT_EQ(refused.status, 403) << fields;
      EXPECT_THAT(refused.head, HasSubstr("403 Forbidden"));
      EXPECT_EQ(client.Ask(Get("/v2")).status, 200);
    }
    // Inference is for everybody.
    EXPECT_EQ(Ask("GET /v2/models/identity HTTP/1.1\r\n" + fields + "\r\n").status, 200);
  }
  EXPECT_THAT(engine_->repository_calls(), ElementsAre());
  Serve(FakeEngine::Answer::kOnOwnThread, {}, {"https://panel.example"});
  EXPECT_EQ(Ask(Post(path + "load", "", "Origin: https://panel.example\r\n")).status, 200);
}

TEST_F(ServerTest, StrictReadinessIsThatOfAllModels) {
  FakeEngine engine;  // one of its models is broken
  ServerOptions options;
  options.http_port = 0;
  options.metrics_port = -1;
  options.strict_readiness = true;
  const auto server = Server::Start(engine, options);
  ASSERT_TRUE(server.ok()) << server.status();
  const HttpAnswer ready = HttpClient((*server)->http_port()).Ask(Get("/v2/health/ready"));
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ErrorOf(ready), "model 'broken' is not ready: node 'n': no such operator");
}

TEST_F(ServerTest, OptionsThatMakeNoSenseAreRefused) {
  FakeEngine engine;
  ServerOptions options;
  options.http_port = 0;
  options.metrics_port = -1;
  options.address = "not an address";
  EXPECT_EQ(Server::Start(engine, options).status().code(), absl::StatusCode::kInvalidArgument);
  options.address = "localhost";
  options.http_port = 70000;
  EXPECT_EQ(Server::Start(engine, options).status().code(), absl::StatusCode::kInvalidArgument);
  options.http_port = 0;
  const auto server = Server::Start(engine, options);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ((*server)->metrics_port(), -1);
  options.http_port = (*server)->http_port();
  EXPECT_EQ(Server::Start(engine, options).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ServerTest, LimitsThatMakeNoSenseAreRefusedByName) {
  FakeEngine engine;
  const auto refusal = [&](auto change) {
    ServerOptions options;
    options.http_port = 0;
    options.metrics_port = -1;
    change(options.limits);
    return Message(Server::Start(engine, options).status());
  };
  EXPECT_EQ(refusal([](ServerLimits& l) { l.max_rank = -1; }),
            "max_rank is -1; it must be 0 to 1048576");
  EXPECT_EQ(refusal([](ServerLimits& l) { l.max_header_bytes = 10; }),
            "max_header_bytes is 10; it must be 256 to 16777216");
  EXPECT_EQ(refusal([](ServerLimits& l) { l.idle_timeout = std::chrono::milliseconds(0); }),
            "idle_timeout (ms) is 0; it must be 1 to 86400000");
  EXPECT_NE(refusal([](ServerLimits& l) { l.max_body_bytes = SIZE_MAX; }), "");
}

}  // namespace
}  // namespace chairlift
