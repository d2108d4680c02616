// `chairlift serve` as a program: limits from flags, a load from `chairlift bench`, and its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cli/load/target.h"
#include "cli/process.h"
#include "engine/test_models.h"
#include "server/http_client.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

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
    http_port_ = PortAfter("models on http://127.0.0.1:");
    metrics_port_ = PortAfter("metrics on http://127.0.0.1:");
  }
  int PortAfter(const std::string& text) {
    const std::string& output = server_->output();
    return std::atoi(output.c_str() + output.find(text) + text.size());
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
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
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
  // The window holds requests back long enough to be still waiting when the signal comes.
  testing::WriteFile(folder_ / "repository/doubling/1/model.onnx",
                     testing::DoublingModel().Bytes());
  testing::WriteFile(folder_ / "repository/doubling/model.yaml",
                     "policy: window\nmax_batch_size: 32\nqueue_delay_us: 1500000\n");
  Serve({"--model-repository", (folder_ / "repository").string()});
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

TEST_F(ServeTest, WhatCannotBeServedEndsWithOne) {
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", "--http-port", "0", "--metrics-port", "-1"});
    Process process(arguments);
    EXPECT_EQ(process.Wait(), 1);
    return process.output();
  };
  EXPECT_THAT(refusal({}), HasSubstr("--model-repository"));
  EXPECT_THAT(refusal({folder_.string()}), HasSubstr("--model-repository " + folder_.string()));
  EXPECT_THAT(refusal({testing::WriteFile(folder_ / "broken.onnx", "what")}),
              HasSubstr("not an ONNX model"));
  EXPECT_THAT(refusal({model_, "--address", "here"}), HasSubstr("'here'"));
}

}  // namespace
}  // namespace chairlift
