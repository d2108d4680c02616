// `chairlift serve` as a program: limits from flags, a load from `chairlift bench`, and its end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/renamed.h"
#include "cli/load/target.h"
#include "cli/process.h"
#include "engine/test_models.h"
#include "graph/decoders/decoder_models.h"
#include "server/http_client.h"
#include "server/server.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBody[] =
    R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,-1,2,0]}]})";
constexpr char kPath[] = "/v2/models/doubling/infer";

class ServeTest : public ::testing::Test {
 protected:
  // On free ports; returns once it answers.
  void Serve(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", "--http-port", "0", "--metrics-port", "0"});
    server_ = std::make_unique<Process>(arguments);
    ASSERT_TRUE(server_->AwaitOutput("/metrics")) << server_->output();
    http_port_ = PortAfter("on http://127.0.0.1:");
    metrics_port_ = PortAfter("metrics on http://127.0.0.1:");
  }
  // −1: it is on another address.
  int PortAfter(const std::string& text) {
    const std::string& output = server_->output();
    const size_t at = output.find(text);
    return at == std::string::npos ? -1 : std::atoi(output.c_str() + at + text.size());
  }
  std::string File(const std::string& name, const std::string& bytes) {
    return testing::WriteFile(folder_ / name, bytes);
  }
  // repository/stateful keeps the state of sequences.
  void WriteStatefulModel() {
    testing::ModelBuilder stateful(17);
    stateful.Input("x", testing::kFloat, {"batch", 4}).Output("y", testing::kFloat);
    stateful.Input("state", testing::kFloat, {"batch", 3}).Output("next", testing::kFloat);
    stateful.Node("Relu", {"x"}, {"y"});
    stateful.Node("Relu", {"state"}, {"next"});
    File("repository/stateful/1/model.onnx", stateful.Bytes());
    File("repository/stateful/model.yaml", "sequence_state: {next: state}\n");
  }
  HttpAnswer Ask(std::string_view request) { return HttpClient(http_port_).Ask(request); }
  // Asks until /metrics says so; false where it does not for very long.
  bool AwaitMetric(const std::string& line) {
    HttpClient client(metrics_port_);
    for (int attempt = 0; attempt < 100'000; ++attempt) {
      if (client.Ask(Get("/metrics")).body.find(line) != std::string::npos) return true;
    }
    return false;
  }

  testing::TempFolder folder_;
  const std::string model_ =
      testing::WriteFile(folder_ / "doubling.onnx", testing::DoublingModel().Bytes());
  std::unique_ptr<Process> server_;
  int http_port_ = 0;
  int metrics_port_ = 0;
};

TEST_F(ServeTest, LimitsAreFlags) {
  Serve({model_, "--max-body-bytes", "2KiB", "--max-header-bytes", "300", "--max-tensors", "1",
         "--max-json-depth", "5", "--idle-timeout-ms", "60000", "--io-threads", "2"});
  EXPECT_EQ(Ask(Post(kPath, kBody)).status, 200);
  EXPECT_THAT(Ask(Post(kPath, std::string(2049, ' '))).body, HasSubstr("limit of 2048 bytes"));
  EXPECT_THAT(Ask(Get("/" + std::string(400, 'x'))).body, HasSubstr("limit of 300 bytes"));
  EXPECT_THAT(Ask(Post(kPath, R"({"inputs":[],"x":[[[[[]]]]]})")).body, HasSubstr("5 levels"));
  const std::string input = R"({"name":"x","datatype":"INT8","shape":[0],"data":[]})";
  EXPECT_THAT(Ask(Post(kPath, R"({"inputs":[)" + input + "," + input + "]}")).body,
              HasSubstr("1 inputs"));
  server_->Signal(SIGINT);
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
}

TEST_F(ServeTest, AFileThatFixesTheBatchToOneIsWarnedAbout) {
  testing::ModelBuilder fixed(17);
  fixed.Input("x", testing::kFloat, {1, 4}).Output("y", testing::kFloat);
  fixed.Node("Relu", {"x"}, {"y"});
  const std::string file = File("fixed.onnx", fixed.Bytes());
  Serve({file, "--set", "batch_dim=0"});
  server_->Signal(SIGINT);
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
  EXPECT_THAT(server_->output(),
              AllOf(HasSubstr("the file fixes the batch to 1; it is opened, as batch_dim says"),
                    Not(HasSubstr("one by one"))));
  for (const bool open : {false, true}) {
    Serve({open ? model_ : file});
    server_->Signal(SIGINT);
    EXPECT_EQ(server_->Wait(), 0) << server_->output();
    const auto warned = HasSubstr(
        R"(the file fixes the batch to 1, so that requests run one by one; set 'batch_dim: 0' in )"
        R"(model.yaml, or export it with an open first dimension: torch.onnx.export(…, )"
        R"(dynamo=True, dynamic_shapes=({0: "batch"},)))");
    if (open) {
      EXPECT_THAT(server_->output(), Not(warned));
    } else {
      EXPECT_THAT(server_->output(), warned);
    }
  }
}

TEST_F(ServeTest, ErrorsNameTypesAsTheProtocolDoes) {
  Serve({model_});
  const HttpAnswer refused = Ask(
      Post(kPath, R"({"inputs":[{"name":"x","datatype":"INT8","shape":[1,4],"data":[1,1,2,0]}]})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, AllOf(HasSubstr("INT8"), HasSubstr("FP32")));
}

TEST_F(ServeTest, BenchLoadsAServer) {
  Serve({model_});
  Process bench({"bench", "doubling", "--url", "http://127.0.0.1:" + std::to_string(http_port_),
                 "--rate", "300", "--seconds", "0.5", "--warmup-seconds", "0"});
  EXPECT_EQ(bench.Wait(), 0);
  EXPECT_THAT(bench.output(), AllOf(HasSubstr("doubling at http://127.0.0.1:"),
                                    ContainsRegex("VALID"), HasSubstr("p99 ms")));
  Process unknown({"bench", "nothing", "--url", "http://127.0.0.1:" + std::to_string(http_port_)});
  EXPECT_EQ(unknown.Wait(), 1);
  EXPECT_THAT(unknown.output(), HasSubstr("nothing"));
}

TEST_F(ServeTest, BenchTimesTokensThatAServerStreams) {
  Serve({File("decoder.onnx", testing::LlamaModel())});
  const std::string url = "http://127.0.0.1:" + std::to_string(http_port_);
  Process bench({"bench", "decoder", "--url", url, "--prompt-lengths", "1-20", "--output-lengths",
                 "4-6", "--concurrency", "4", "--seconds", "0.3", "--warmup-seconds", "0.1"});
  EXPECT_EQ(bench.Wait(), 0) << bench.output();
  EXPECT_THAT(bench.output(), AllOf(HasSubstr("decoder at http://127.0.0.1:"),
                                    HasSubstr("between tokens"), Not(HasSubstr("failed"))));
  Process refused(
      {"bench", "decoder", "--url", url, "--prompt-lengths", "4", "--output-lengths", "99999"});
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(refused.output(), HasSubstr("max_tokens is 99999"));
}

TEST_F(ServeTest, ModelsThatGenerateCountTokens) {
  Serve({File("decoder.onnx", testing::LlamaModel()), model_});
  const HttpAnswer answer = Ask(Post("/v2/models/decoder/generate",
                                     R"({"input_ids":[1,2,3],"max_tokens":4,"ignore_eos":true})"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::string labels = R"({model="decoder",version="1"})";
  const std::string metrics = HttpClient(metrics_port_).Ask(Get("/metrics")).body;
  for (const std::string& line : {
           "chairlift_prompt_tokens_total" + labels + " 3\n",
           "chairlift_generation_tokens_total" + labels + " 4\n",
           "chairlift_generation_requests_running" + labels + " 0\n",
           "chairlift_generation_requests_waiting" + labels + " 0\n",
           "chairlift_generation_preemptions_total" + labels + " 0\n",
           "chairlift_kv_cache_blocks_used" + labels + " 0\n",
           "chairlift_kv_cache_tokens_used" + labels + " 0\n",
           "chairlift_time_to_first_token_seconds_count" + labels + " 1\n",
           "chairlift_inter_token_latency_seconds_count" + labels + " 3\n",
           std::string("chairlift_inter_token_latency_seconds_bucket{model=\"decoder\","
                       "version=\"1\",le=\"+Inf\"} 3\n"),
       }) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
  EXPECT_THAT(metrics, Not(HasSubstr("chairlift_kv_cache_blocks{model=\"doubling\"")));
  EXPECT_THAT(Ask(Get("/v2/models/decoder/stats")).body,
              AllOf(HasSubstr(R"("generation_tokens":4)"), HasSubstr(R"("prompt_tokens":3)")));
  EXPECT_THAT(Ask(Get("/v2/models/doubling/stats")).body, Not(HasSubstr("generation")));
  // Old names, for one version.
  for (const Renamed& renamed : RenamedMetrics()) {
    const std::string from = renamed.from;
    EXPECT_THAT(metrics,
                AllOf(HasSubstr("# HELP " + from + " `" + from + "` is now"),
                      ContainsRegex("\n" + from + "[_a-z]*\\{model="), HasSubstr(renamed.to)));
  }
  const std::string body = Ask(Get("/v2/models/decoder/stats")).body;
  for (const Renamed& renamed : RenamedFields()) {
    EXPECT_THAT(body, AllOf(HasSubstr("\"" + std::string(renamed.from) + "\":"),
                            HasSubstr("\"" + std::string(renamed.to) + "\":")));
  }
}

TEST_F(ServeTest, BenchMakesUpTheStateOfSequences) {
  WriteStatefulModel();
  Serve({"--model-repository", (folder_ / "repository").string()});
  Process bench({"bench", "stateful", "--url", "http://127.0.0.1:" + std::to_string(http_port_),
                 "--rate", "100", "--seconds", "0.3", "--warmup-seconds", "0"});
  EXPECT_EQ(bench.Wait(), 0);
  EXPECT_THAT(bench.output(), HasSubstr("x float32 [1,4], state float32 [1,3], made up"));
}

TEST_F(ServeTest, ALoadsTargetTellsTheModelsCounters) {
  Serve({model_});
  auto target = MakeHttpTarget("http://127.0.0.1:" + std::to_string(http_port_), "doubling", 1);
  ASSERT_TRUE(target.ok()) << target.status();
  const size_t request = (*target)->Prepare(
      {{"x", Tensor::Of<float>({3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})}});
  for (uint64_t i = 1; i <= 2; ++i) {
    std::promise<Status> answered;
    (*target)->Send(request, [&answered](Status status) { answered.set_value(std::move(status)); });
    const Status status = answered.get_future().get();
    ASSERT_TRUE(status.ok()) << status;
    const auto statistics = (*target)->Statistics();
    ASSERT_TRUE(statistics.ok()) << statistics.status();
    ASSERT_EQ(statistics->batches.size(), 1u);
    EXPECT_EQ(statistics->batches.at(3).count, i);
    EXPECT_GT(statistics->batches.at(3).ns, 0u);
  }
}

TEST_F(ServeTest, WhatIsInFlightIsAnsweredAfterSigtermAndTheRestIsRefused) {
  // The window holds requests back until the last one of a whole batch comes, after the signal.
  testing::WriteFile(folder_ / "repository/doubling/1/model.onnx",
                     testing::DoublingModel().Bytes());
  testing::WriteFile(folder_ / "repository/doubling/model.yaml",
                     "policy: window\nmax_batch_size: 21\nqueue_delay_us: 50000000\n");
  Serve({"--model-repository", (folder_ / "repository").string(), "--drain-seconds", "0"});
  constexpr int kClients = 20;
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<HttpClient>(http_port_));
    ASSERT_TRUE(clients.back()->Send(Post(kPath, kBody)));
  }
  HttpClient half(http_port_);  // its header has come, its body only in part
  const std::string request = Post(kPath, kBody);
  half.Send(request.substr(0, request.size() - 10));
  HttpClient idle(http_port_);
  ASSERT_EQ(idle.Ask(Get("/v2")).status, 200);
  ASSERT_TRUE(AwaitMetric("chairlift_http_requests_in_flight 20\n"));

  server_->Signal(SIGTERM);
  ASSERT_TRUE(server_->AwaitOutput("draining"));
  EXPECT_TRUE(idle.AtEnd());
  idle.Close();
  half.Send(request.substr(request.size() - 10));
  for (const auto& client : clients) {
    const HttpAnswer answer = client->Read();
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, HasSubstr("[2,0,4,0]"));
    EXPECT_EQ(answer.Field("Connection"), "close");
  }
  EXPECT_EQ(half.Read().status, 200);
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
  EXPECT_FALSE(HttpClient(http_port_).connected());
}

TEST_F(ServeTest, ASecondSignalEndsItAtOnce) {
  testing::WriteFile(folder_ / "repository/doubling/1/model.onnx",
                     testing::DoublingModel().Bytes());
  testing::WriteFile(folder_ / "repository/doubling/model.yaml",
                     "policy: window\nqueue_delay_us: 50000000\n");
  Serve({"--model-repository", (folder_ / "repository").string()});
  HttpClient waiting(http_port_);
  waiting.Send(Post(kPath, kBody));
  ASSERT_TRUE(AwaitMetric("chairlift_http_requests_in_flight 1\n"));
  server_->Signal(SIGINT);
  ASSERT_TRUE(server_->AwaitOutput("draining"));
  server_->Signal(SIGINT);
  EXPECT_EQ(server_->Wait(), -SIGINT) << server_->output();
}

TEST_F(ServeTest, AfterSigtermRequestsAreAnsweredUntilLoadBalancersHaveNoticed) {
  Serve({model_, "--drain-seconds", "3600"});
  HttpClient open(http_port_);
  ASSERT_EQ(open.Ask(Get("/v2/health/ready")).status, 200);
  server_->Signal(SIGTERM);
  ASSERT_TRUE(server_->AwaitOutput("no longer ready"));
  const HttpAnswer ready = Ask(Get("/v2/health/ready"));
  EXPECT_EQ(ready.status, 503);
  HttpClient fresh(http_port_);
  for (HttpClient* client : {&open, &fresh}) {
    const HttpAnswer answer = client->Ask(Post(kPath, kBody));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.Field("Connection"), "close");
    EXPECT_TRUE(client->AtEnd());
    EXPECT_FALSE(client->was_reset());
  }
  EXPECT_TRUE(AwaitMetric("chairlift_http_requests_in_flight 0\n"));
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), -SIGTERM) << server_->output();
}

TEST_F(ServeTest, AfterSigtermItEndsByItself) {
  Serve({model_, "--drain-seconds", "1"});
  HttpClient open(http_port_);
  ASSERT_EQ(open.Ask(Get("/v2/health/ready")).status, 200);
  server_->Signal(SIGTERM);
  EXPECT_TRUE(open.AtEnd());
  EXPECT_FALSE(open.was_reset());
  open.Close();
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
}

TEST_F(ServeTest, ALogThatNobodyReadsAndAClosedTerminalDoNotEndIt) {
  Serve({model_, "--log-level", "debug"});
  server_->Signal(SIGHUP);
  ASSERT_TRUE(server_->AwaitOutput("SIGHUP is ignored"));
  server_->StopReading();
  EXPECT_EQ(Ask(Post(kPath, kBody)).status, 200);  // which is logged
  server_->Signal(SIGHUP);
  EXPECT_EQ(Ask(Post(kPath, kBody)).status, 200);
  server_->Signal(SIGINT);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(ServeTest, AClosedLogIsNotWrittenToAClient) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  ::fcntl(sockets[0], F_SETFD, FD_CLOEXEC);
  server_ = std::make_unique<Process>(
      std::vector<std::string>{"serve", model_, "--http-port", "0", "--metrics-port", "-1",
                               "--log-level", "debug", "--print-example", "--parent-fd",
                               std::to_string(sockets[1])},
      std::vector<std::string>{}, Process::Output::kClosed);
  ::close(sockets[1]);
  char address[100] = {};
  ASSERT_GT(::recv(sockets[0], address, sizeof(address) - 1, 0), 0);
  HttpClient client(std::atoi(std::strchr(address, ':') + 1));
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer answer = client.Ask(Post(kPath, kBody));
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, HasSubstr("[2,0,4,0]"));
  }
  client.EndSending();
  EXPECT_TRUE(client.AtEnd());
  ::close(sockets[0]);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(ServeTest, NamesCannotForgeALineOfTheLog) {
  const std::string forged = "\n[2026-01-01 00:00:00.000] [info] forged\r\x1b[2K";
  testing::ModelBuilder broken(17);
  broken.Input("x", testing::kFloat, {"batch", 4}).Output("y", testing::kFloat);
  broken.Node("No" + forged, {"x"}, {"y" + forged});
  const std::string file = File("models/broken/1/model.onnx", broken.Bytes());
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  Serve({(folder_ / "models").string(), "--log-level", "debug", "--model-control-mode", "explicit",
         "--load-model", "*"});
  ASSERT_THAT(server_->output(), HasSubstr("model not loaded"));
  // In JSON, in a path, in a model's name, and where no request can be read.
  const std::string escaped = R"(\n[2026-01-01 00:00:00.000] [info] forged\r\u001b)";
  EXPECT_EQ(
      Ask(Post(kPath, R"({"id":")" + escaped + R"(",)" + std::string(kBody).substr(1))).status,
      200);
  EXPECT_EQ(Ask(Post("/v2/repository/models/a%0A%5B2026-01-01%5D%20forged/load", "")).status, 400);
  EXPECT_EQ(Ask(Get("/v2/models/a%0A%5B2026-01-01%5D%20forged")).status, 404);
  EXPECT_EQ(Ask("GET /\n[2026-01-01] forged HTTP/1.1\r\nHost: x\r\n\r\n").status, 400);
  server_->Signal(SIGINT);
  EXPECT_EQ(server_->Wait(), 0);
  Process alone({"serve", "--http-port", "0", "--metrics-port", "-1", file});
  EXPECT_EQ(alone.Wait(), 1);
  for (const std::string& output : {server_->output(), alone.output()}) {
    EXPECT_THAT(output, HasSubstr("forged"));
    EXPECT_THAT(output, Not(HasSubstr("\n[2026-01-01")));
    EXPECT_THAT(output, Not(HasSubstr("\r")));
    EXPECT_THAT(output, Not(HasSubstr("\x1b[2K")));
  }
}

TEST_F(ServeTest, RequestsAreLoggedAtDebug) {
  Serve({model_, "--log-level", "debug"});
  const std::string body = R"({"id":"r 7",)" + std::string(kBody).substr(1);
  HttpClient client(http_port_);
  const HttpAnswer answer = client.Ask(Post(kPath, body));
  ASSERT_EQ(answer.status, 200);
  const size_t bytes = answer.head.size() + 2 + answer.body.size();
  EXPECT_EQ(client.Ask(Get("/nothing?a=b")).status, 404);
  EXPECT_TRUE(server_->AwaitOutput("404 from 127.0.0.1: ")) << server_->output();
  EXPECT_THAT(server_->output(),
              ContainsRegex("\\[debug\\] POST \"/v2/models/doubling/infer\" 200 from 127.0.0.1: " +
                            std::to_string(bytes) +
                            " bytes, [0-9.]+ ms, model \"doubling\", id \"r 7\"\n"));
  EXPECT_THAT(server_->output(), HasSubstr("[debug] GET \"/nothing?a=b\" 404 from 127.0.0.1: "));
}

TEST_F(ServeTest, LogsAreObjectsOnRequest) {
  Serve({model_, "--log-level", "debug", "--log-format", "json"});
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string body = R"({"id":"a\"b",)" + std::string(kBody).substr(1);
  HttpClient client(http_port_);
  for (const std::string& field :
       {"00-" + trace + "-00f067aa0ba902b7-01", "01-" + trace + "-00f067aa0ba902b7-01-more"}) {
    EXPECT_EQ(client.Ask(Post(kPath, body, "traceparent: " + field + "\r\n")).status, 200);
  }
  // Wrong ones, which have no effect.
  for (const std::string& field :
       {std::string("x"), "00-" + trace, "00-" + trace + "-0-01",
        "ff-" + trace + "-00f067aa0ba902b7-01", "00-" + trace + "-00f067aa0ba902b7-01-more",
        "00-" + trace + "-0000000000000000-01",
        "00-" + std::string(32, '0') + "-00f067aa0ba902b7-01",
        "00-" + std::string(32, 'A') + "-00f067aa0ba902b7-01"}) {
    EXPECT_EQ(client.Ask(Post(kPath, body, "traceparent: " + field + "\r\n")).status, 200);
  }
  EXPECT_EQ(client.Ask(Get("/no\"thing")).status, 404);
  EXPECT_TRUE(server_->AwaitOutput("\"status\":404")) << server_->output();
  server_->Signal(SIGINT);
  EXPECT_EQ(server_->Wait(), 0);
  int requests = 0;
  std::istringstream lines(server_->output());
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(entry.is_object()) << line;
    EXPECT_THAT(entry.at("time").get<std::string>(),
                ContainsRegex("^20[0-9-]{8}T[0-9:]{8}[.][0-9]{3}Z$"));
    EXPECT_TRUE(entry.contains("level") && entry.contains("message")) << line;
    if (!entry.contains("status")) continue;
    EXPECT_EQ(entry.at("level"), "debug");
    EXPECT_EQ(entry.at("client"), "127.0.0.1");
    if (entry.at("status") == 404) {
      EXPECT_EQ(entry.at("path"), "/no\"thing");
      continue;
    }
    EXPECT_EQ(entry.at("path"), kPath);
    EXPECT_EQ(entry.at("id"), "a\"b");
    EXPECT_EQ(entry.at("model"), "doubling");
    EXPECT_EQ(entry.at("complete"), true);
    EXPECT_EQ(entry.value("trace_id", ""), requests < 2 ? trace : "") << line;
    ++requests;
  }
  EXPECT_EQ(requests, 10);
}

TEST_F(ServeTest, ClientsLoadsAreLogged) {
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  File("models/broken/1/model.onnx", "what");
  Serve({(folder_ / "models").string(), "--model-control-mode", "explicit"});
  const auto post = [&](const std::string& call) {
    return Ask(Post("/v2/repository/models/" + call, "")).status;
  };
  EXPECT_EQ(post("doubling/load"), 200);
  EXPECT_TRUE(server_->AwaitOutput("[info] loaded for a client: doubling version 1: "));
  EXPECT_EQ(post("doubling/unload"), 200);
  EXPECT_TRUE(server_->AwaitOutput("[info] unloaded for a client: doubling"));
  EXPECT_EQ(post("broken/load"), 400);
  EXPECT_TRUE(server_->AwaitOutput("[error] model 'broken' not loaded for a client: "));
}

TEST_F(ServeTest, AModelThatCannotBeLoadedMayEndIt) {
  File("models/broken/1/model.onnx", "what");
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  const std::string models = (folder_ / "models").string();
  for (const char* flag : {"--exit-on-error", "--exit-on-error=true"}) {
    Process process({"serve", "--http-port", "0", "--metrics-port", "-1", models, flag});
    EXPECT_EQ(process.Wait(), 1);
    EXPECT_THAT(process.output(), AllOf(HasSubstr("(--exit-on-error)"), HasSubstr("broken")));
  }
  Serve({models, "--exit-on-error=false"});
  EXPECT_EQ(Ask(Get("/v2/health/ready")).status, 200);
  Serve({models, "--strict-readiness"});
  const HttpAnswer ready = Ask(Get("/v2/health/ready"));
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(ready.body, HasSubstr("model 'broken' is not ready"));
}

TEST_F(ServeTest, ModelsThatNobodyAskedForDoNotCountAsUnready) {
  File("models/broken/1/model.onnx", "what");
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  Serve({(folder_ / "models").string(), "--load-model", "doubling", "--strict-readiness"});
  EXPECT_EQ(Ask(Get("/v2/health/ready")).status, 200);
  EXPECT_EQ(Ask(Post("/v2/repository/models/doubling/unload", "")).status, 200);
  EXPECT_EQ(Ask(Get("/v2/health/ready")).status, 200);
  EXPECT_NE(Ask(Post("/v2/repository/models/broken/load", "")).status, 200);
  EXPECT_EQ(Ask(Get("/v2/health/ready")).status, 503);
}

TEST_F(ServeTest, WhoeverListensToOtherMachinesIsWarned) {
  Serve({model_, "--address", "0.0.0.0"});
  EXPECT_THAT(server_->output(),
              ContainsRegex("\\[warning\\] everyone who can reach 0.0.0.0:[0-9]+"));
  for (const char* address : {"127.0.0.1", "127.0.0.2", "localhost", "[::1]"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"0.0.0.0", "[::]", "192.0.2.1", "::ffff:192.0.2.1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST_F(ServeTest, NamesThatClientsMayCallItByAreAllowed) {
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  Serve({(folder_ / "models").string(), "--model-control-mode", "explicit", "--allowed-host",
         "models.example", "--http-metrics"});
  const auto load = [&](const std::string& host) {
    return Ask("POST /v2/repository/models/doubling/load HTTP/1.1\r\nHost: " + host +
               "\r\nContent-Length: 0\r\n\r\n")
        .status;
  };
  EXPECT_EQ(load("models.example:8000"), 200);
  EXPECT_EQ(load("other.example:8000"), 403);
  EXPECT_THAT(Ask(Get("/metrics")).body, HasSubstr("chairlift_http_connections"));
}

TEST_F(ServeTest, TakesAModelsFolderAVersionsAndARepository) {
  const std::string bytes = testing::DoublingModel().Bytes();
  File("models/doubling/1/model.onnx", "not the latest");
  File("models/doubling/3/model.onnx", bytes);
  File("models/other/2/model.onnx", bytes);
  const auto ready = [this](const std::string& path) {
    return Ask(Get("/v2/models/" + path + "/ready")).status;
  };
  for (const char* folder : {"models/doubling", "models/doubling/", "models/doubling/3"}) {
    Serve({(folder_ / folder).string()});
    EXPECT_EQ(Ask(Post(kPath, kBody)).status, 200) << folder;
    EXPECT_EQ(ready("doubling/versions/3"), 200) << folder;
    EXPECT_EQ(ready("other"), 404) << folder;
    EXPECT_THAT(server_->output(), HasSubstr("1 model on http")) << folder;
  }
  Serve({(folder_ / "models").string(), model_});
  EXPECT_EQ(ready("other"), 200);
  EXPECT_EQ(ready("doubling"), 200);
  EXPECT_EQ(ready("doublin"), 404);
  EXPECT_THAT(Ask(Get("/v2/models/doublin")).body, HasSubstr("did you mean 'doubling'?"));
}

TEST_F(ServeTest, FilesThatLieInARepositoryItselfAreNamed) {
  const std::string bytes = testing::DoublingModel().Bytes();
  File("models/doubling/1/model.onnx", bytes);
  File("models/b.onnx", bytes);
  File("models/a.onnx", bytes);
  Serve({(folder_ / "models").string()});
  EXPECT_THAT(server_->output(),
              AllOf(HasSubstr("a.onnx and 1 more lie in the repository itself, and are not served"),
                    HasSubstr("as a/model.onnx"), HasSubstr("1 model on http")));
}

TEST_F(ServeTest, AModelIsNamedAfterItsFolder) {
  const std::string bytes = testing::DoublingModel().Bytes();
  const std::string snapshot = "models--org--name/snapshots/abcdef/";
  File("flat/model.onnx", bytes);
  File("hub/onnx/model.onnx", bytes);
  File("hub/onnx/model_quantized.onnx", bytes);
  File("versions/4/model.onnx", bytes);
  File("onnx/detector.onnx", bytes);
  File(snapshot + "onnx/model.onnx", bytes);
  File("models--org--name/refs/main", "abcdef");
  const std::pair<const char*, const char*> expected[] = {
      {"flat", "flat"},
      {"hub", "hub"},
      {"hub/onnx", "hub"},
      {"hub/onnx/model.onnx", "hub"},
      {"hub/onnx/model_quantized.onnx", "hub"},
      {"versions/4/model.onnx", "versions"},
      {"onnx/detector.onnx", "detector"},
      {"flat/model.onnx", "model"},
      {"models--org--name", "name"},
      {"models--org--name/snapshots/abcdef/onnx/model.onnx", "name"},
  };
  for (const auto& [path, name] : expected) {
    Serve({(folder_ / path).string()});
    EXPECT_THAT(Ask(Post("/v2/repository/index", "")).body,
                HasSubstr(R"("name":")" + std::string(name) + '"'))
        << path;
  }
}

TEST_F(ServeTest, OneModelMayBeGivenAName) {
  Serve({model_, "--name", "mine"});
  EXPECT_EQ(Ask(Post("/v2/models/mine/infer", kBody)).status, 200);
  EXPECT_EQ(Ask(Post(kPath, kBody)).status, 404);
  const std::string other = File("other.onnx", testing::DoublingModel().Bytes());
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  for (const std::vector<std::string>& models :
       {std::vector<std::string>{model_, other},
        {(folder_ / "models").string()},
        {model_, "--model-repository", (folder_ / "models").string()}}) {
    std::vector<std::string> arguments = {"serve", "--http-port", "0", "--name", "mine"};
    arguments.insert(arguments.end(), models.begin(), models.end());
    Process process(arguments);
    EXPECT_EQ(process.Wait(), 2);
    EXPECT_THAT(process.output(), HasSubstr("--name is for one model"));
  }
  Process slash({"serve", model_, "--http-port", "0", "--metrics-port", "-1", "--name", "a/b"});
  EXPECT_NE(slash.Wait(), 0);
  EXPECT_THAT(slash.output(), HasSubstr("cannot be a model's name"));
}

TEST_F(ServeTest, APipelineIsServedWithItsSteps) {
  File("models/z/1/model.onnx", testing::DoublingModel().Bytes());
  File("models/a/model.yaml", "steps: [{model: z}, {model: z, inputs: {x: y}}]\n");
  Serve({(folder_ / "models").string()});
  const HttpAnswer answer = Ask(Post("/v2/models/a/infer", kBody));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr("[4,0,8,0]"));
  EXPECT_THAT(server_->output(), HasSubstr("a pipeline (z, z)"));
  Process alone({"serve", (folder_ / "models/a").string()});
  EXPECT_NE(alone.Wait(), 0);
  EXPECT_THAT(alone.output(), HasSubstr("serve the folder of models it is in"));
}

TEST_F(ServeTest, APortThatIsTakenShowsBeforeAnyModelIsLoaded) {
  Serve({model_});
  const auto refusal = [&](const char* flag, const char* other, int port) {
    Process process({"serve", File("broken.onnx", "what"), flag, std::to_string(port), other, "0"});
    EXPECT_EQ(process.Wait(), 1);
    return process.output();
  };
  EXPECT_THAT(refusal("--http-port", "--metrics-port", http_port_),
              HasSubstr("--http-port: cannot listen on 127.0.0.1:"));
  EXPECT_THAT(refusal("--metrics-port", "--http-port", http_port_),
              HasSubstr("--metrics-port: cannot listen on 127.0.0.1:"));
}

TEST_F(ServeTest, PrintsARequestOrWhatWorksInstead) {
  testing::ModelBuilder wide(17);
  wide.Input("x", testing::kFloat, {1, 1000}).Output("y", testing::kFloat);
  wide.Node("Relu", {"x"}, {"y"});
  Serve({model_, File("wide.onnx", wide.Bytes()), "--print-example", "--address", "0.0.0.0"});
  ASSERT_TRUE(server_->AwaitOutput("print(answer.as_numpy(\"y\"))")) << server_->output();
  EXPECT_THAT(server_->output(),
              AllOf(HasSubstr("# wide: its inputs are too large to paste; in Python"),
                    HasSubstr("curl -s 127.0.0.1:"),
                    HasSubstr("input0 = http.InferInput(\"x\", [1, 1000], \"FP32\")"),
                    HasSubstr("input0.set_data_from_numpy(np.ones([1, 1000], np.float32))"),
                    HasSubstr(").infer(\"wide\", [input0])")));
}

TEST_F(ServeTest, PrintsTheFirstChunkOfASequence) {
  WriteStatefulModel();
  Serve({"--model-repository", (folder_ / "repository").string(), "--print-example"});
  const std::string body =
      R"({"parameters":{"sequence_id":1,"sequence_start":true},"inputs":[{"name":"x",)"
      R"("datatype":"FP32","shape":[1,4],"data":[1,1,1,1]}]})";
  EXPECT_TRUE(server_->AwaitOutput("/v2/models/stateful/infer -d '" + body + "'"))
      << server_->output();
  EXPECT_THAT(server_->output(), HasSubstr("curl -s "));
  EXPECT_EQ(Ask(Post("/v2/models/stateful/infer", body)).status, 200);
}

TEST_F(ServeTest, ListensBeforeItLoads) {
  File("models/broken/1/model.onnx", "what");
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  Serve({(folder_ / "models").string()});
  EXPECT_EQ(PortAfter("listening on 127.0.0.1:"), http_port_);
  EXPECT_LT(server_->output().find("listening on"), server_->output().find("model not loaded"));
  EXPECT_EQ(Ask(Get("/v2/health/ready")).status, 200);
}

TEST_F(ServeTest, ACommandLineThatMakesNoSenseEndsWithTwo) {
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", "--http-port", "0", "--metrics-port", "-1"});
    Process process(arguments);
    EXPECT_EQ(process.Wait(), 2);
    return process.output();
  };
  EXPECT_THAT(refusal({}), HasSubstr("nothing to serve"));
  EXPECT_THAT(refusal({model_, "--load-model", "doubling"}), HasSubstr("--load-model"));
  EXPECT_THAT(refusal({model_, "--address", "here"}), HasSubstr("--address: 'here'"));
  EXPECT_THAT(refusal({model_, "--address", "203.0.113.1"}),
              HasSubstr("--address: 203.0.113.1 is not an address of this machine"));
  EXPECT_THAT(refusal({model_, "--cors-allow-origin", "foo"}),
              HasSubstr("--cors-allow-origin: 'foo'"));
  EXPECT_THAT(refusal({model_, "--cores", "5000"}), HasSubstr("this process may run on: "));
  EXPECT_THAT(refusal({model_, File("other/doubling.onnx", "")}),
              AllOf(HasSubstr(model_), HasSubstr("'doubling'")));
}

TEST_F(ServeTest, WhatCannotBeServedEndsWithOne) {
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", "--http-port", "0", "--metrics-port", "-1"});
    Process process(arguments);
    EXPECT_EQ(process.Wait(), 1);
    return process.output();
  };
  EXPECT_THAT(refusal({File("empty/README", "")}), HasSubstr("not an ONNX model"));
  EXPECT_THAT(refusal({(folder_ / "empty").string()}),
              AllOf(HasSubstr("is not a model's folder"), HasSubstr("it has only: README")));
  EXPECT_THAT(refusal({testing::WriteFile(folder_ / "broken.onnx", "what")}),
              HasSubstr("not an ONNX model"));
  File("models/doubling/1/model.onnx", testing::DoublingModel().Bytes());
  File("models/other/v1/model.onnx", "");
  const std::string models = (folder_ / "models").string();
  EXPECT_THAT(refusal({"--model-repository", models + "/doubling"}),
              HasSubstr("one model's folder, not a folder of models"));
  EXPECT_THAT(refusal({"--model-repository", (folder_ / "empty").string()}),
              HasSubstr("holds no models; a repository is"));
  EXPECT_THAT(refusal({models, "--load-model", "doublin"}),
              AllOf(HasSubstr("no model of --load-model could be loaded"),
                    HasSubstr("did you mean 'doubling'?")));
  EXPECT_THAT(refusal({models, "--load-model", "other"}),
              AllOf(HasSubstr("as other/1/model.onnx"), HasSubstr("rename the folder v1, as 1")));
  // What a server ends for is said once.
  File("one/bad/1/model.onnx", testing::DoublingModel().Bytes());
  File("one/bad/model.yaml", "max_batch_sise: 4\n");
  const std::string said = refusal({(folder_ / "one").string()});
  EXPECT_THAT(said, HasSubstr("did you mean 'max_batch_size'?"));
  EXPECT_EQ(said.find("max_batch_sise"), said.rfind("max_batch_sise"));
  // The folder of a model whose settings are wrong is not a folder of models.
  EXPECT_THAT(refusal({(folder_ / "one/bad").string()}),
              HasSubstr("did you mean 'max_batch_size'?"));
}

}  // namespace
}  // namespace chairlift
