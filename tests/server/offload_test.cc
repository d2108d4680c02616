// What grows with a request does not run on the io thread: while it is held up, others are served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/compressed.h"
#include "server/server_fixture.h"

namespace chairlift {
namespace {

// Blocks its caller until it is released.
class HoldingEngine final : public FakeEngine {
 public:
  HoldingEngine() : FakeEngine(Answer::kOnOwnThread) {}

  RequestId InferAsync(InferRequest request, InferCallback callback) override {
    if (request.id == "hold") Hold();
    return FakeEngine::InferAsync(std::move(request), std::move(callback));
  }
  StatusOr<std::vector<ModelStatistics>> Statistics(const std::string& name,
                                                    const std::string& version) const override {
    if (!name.empty()) Hold();
    return FakeEngine::Statistics(name, version);
  }

  void AwaitHeld() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return held_; });
  }
  void LetGo() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
  }

 private:
  void Hold() const {
    std::unique_lock<std::mutex> lock(mutex_);
    held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return released_; });
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool held_ = false;
  bool released_ = false;
};

class OffloadTest : public ::testing::Test {
 protected:
  OffloadTest() {
    ServerOptions options;
    options.http_port = 0;
    options.metrics_port = -1;
    options.codec_threads = 1;
    auto server = Server::Start(engine_, options);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~OffloadTest() override { engine_.LetGo(); }

  int Live() { return HttpClient(server_->http_port()).Ask(Get("/v2/health/live")).status; }

  HoldingEngine engine_;
  std::unique_ptr<Server> server_;
};

std::string LargeRequest() {
  return Post(kInferPath, R"({"id":"hold",)" + std::string(100'000, ' ') + R"("inputs":[]})");
}

TEST_F(OffloadTest, LargeRequestsAreReadElsewhere) {
  HttpClient client(server_->http_port());
  client.Send(LargeRequest());
  engine_.AwaitHeld();
  EXPECT_EQ(Live(), 200);
  HttpClient small(server_->http_port());
  EXPECT_EQ(small.Ask(Post(kInferPath, kInferBody)).body, kInferAnswer);
  engine_.LetGo();
  EXPECT_EQ(client.Read().status, 200);
}

// The body is not read: it is no JSON.
TEST_F(OffloadTest, ALargeRequestToAFullQueueIsRefusedUnread) {
  engine_.set_reserve(ResourceExhausted("the queue is full"));
  HttpClient client(server_->http_port());
  const std::string wrong(100'000, '[');
  EXPECT_EQ(client.Ask(Post(kInferPath, wrong)).status, 503);
  const std::string encoding = "Content-Encoding: gzip\r\n";
  const HttpAnswer packed = client.Ask(Post(kInferPath, Compressed(wrong, kGzip), encoding));
  EXPECT_EQ(packed.status, 503);
  EXPECT_THAT(packed.body, ::testing::HasSubstr("the queue is full"));
  EXPECT_EQ(client.Ask(Post("/v2/models/identity/generate", wrong)).status, 503);
  EXPECT_EQ(client.Ask(Post("/v2/models/unknown/infer", wrong)).status, 404);
  EXPECT_EQ(client.Ask(Post(kInferPath, kInferBody)).body, kInferAnswer);
  engine_.set_reserve(absl::OkStatus());
  EXPECT_EQ(client.Ask(Post(kInferPath, wrong)).status, 400);
  EXPECT_EQ(client.Ask(Post(kInferPath, Compressed(wrong, kGzip), encoding)).status, 400);
  EXPECT_EQ(engine_.places(), 0) << "each refused request has given its place back";
}

// 404 and 400 would tell clients not to try again.
TEST_F(OffloadTest, ATextModelThatLoadsIsNotReady) {
  engine_.add_loading_model("a");        // its text models are not known yet
  engine_.add_loading_model("b/embed");  // "b" is loaded
  engine_.add_text_model("b");
  HttpClient client(server_->http_port());
  for (const std::string model : {"a", "b"}) {
    const std::string body = R"({"input": "x", "model": ")" + model + "\"}";
    const HttpAnswer answer = client.Ask(Post("/v1/embeddings", body));
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_THAT(answer.body, ::testing::HasSubstr("is not ready"));
  }
}

// The same for routes whose bodies name the model, at either end. None of them is JSON.
TEST_F(OffloadTest, ALargeTextRequestToAFullQueueIsRefusedUnread) {
  for (const char* name : {"a/embed", "b/embed", "c/rerank", "d/complete", "e/predict"}) {
    engine_.add_text_model(name);
  }
  engine_.set_reserve(ResourceExhausted("the queue is full"));
  HttpClient client(server_->http_port());
  const std::string wrong(100'000, ' ');
  const auto refused = [&](const std::string& path, const std::string& body,
                           const std::string& model) {
    const HttpAnswer answer = client.Ask(Post(path, body));
    EXPECT_EQ(answer.status, 503) << path << answer.body;
    EXPECT_THAT(answer.body, ::testing::HasSubstr("the queue is full"));
    EXPECT_EQ(engine_.reserved().back(), model) << path;
  };
  const std::string at_end = "{\"input\": ?" + wrong + R"(, "model": "b"})";
  refused("/v1/embeddings", R"({"model": "a", )" + wrong, "a/embed");
  refused("/v1/embeddings", at_end, "b/embed");
  refused("/embed", R"({"model": "b", )" + wrong, "b/embed");
  refused("/similarity", R"({"model": "b", )" + wrong, "b/embed");
  refused("/rerank", "[" + wrong, "c/rerank");  // the only one
  refused("/v1/rerank", "[" + wrong, "c/rerank");
  refused("/predict", "[" + wrong, "e/predict");
  refused("/v1/completions", "[" + wrong, "d/complete");
  refused("/v1/chat/completions", "[" + wrong, "d/complete");
  EXPECT_EQ(client.Ask(Post("/v1/embeddings", "{" + wrong)).status, 400) << "no model is named";
  const std::string between = "{\"input\": \"" + wrong + R"(", "model": "a", "x": ")" + wrong;
  EXPECT_EQ(client.Ask(Post("/v1/embeddings", between)).status, 400) << "it is read first";
  engine_.set_reserve(absl::OkStatus());
  EXPECT_EQ(client.Ask(Post("/v1/embeddings", at_end)).status, 400);
  EXPECT_EQ(engine_.places(), 0);
}

TEST_F(OffloadTest, ALargeRequestHoldsItsPlaceUntilTheEngineHasIt) {
  HttpClient client(server_->http_port());
  client.Send(LargeRequest());
  engine_.AwaitHeld();
  EXPECT_EQ(engine_.places(), 1);
  HttpClient gone(server_->http_port());
  gone.Send(LargeRequest());  // waits for the only thread
  while (engine_.places() < 2) std::this_thread::yield();
  gone.Reset();
  while (engine_.places() > 1) std::this_thread::yield();
  engine_.LetGo();
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(OffloadTest, LargeAnswersAreEncodedElsewhere) {
  HttpClient busy(server_->http_port());
  busy.Send(LargeRequest());
  engine_.AwaitHeld();
  Tensor large = Tensor::Allocate(DType::kUInt8, {100'000});
  std::memset(large.raw(), 7, large.byte_size());
  engine_.set_output(large);
  HttpClient client(server_->http_port());
  client.Send(Post(kInferPath, kInferBody));
  engine_.AwaitRequests(1);
  EXPECT_EQ(Live(), 200);
  EXPECT_FALSE(client.HasAnswer());  // the only thread that would encode it is held up
  engine_.LetGo();
  EXPECT_EQ(json::parse(client.Read().body)["outputs"][0]["data"].size(), 100'000);
  EXPECT_EQ(busy.Read().status, 200);
}

TEST_F(OffloadTest, ListsAreMadeElsewhere) {
  HttpClient client(server_->http_port());
  client.Send(Get("/v2/models/identity/stats"));
  engine_.AwaitHeld();
  EXPECT_EQ(Live(), 200);
  engine_.LetGo();
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(OffloadTest, ARequestOfAClientThatLeftWhileItWasReadIsCancelled) {
  HttpClient client(server_->http_port());
  client.Send(LargeRequest());
  engine_.AwaitHeld();
  client.Reset();
  EXPECT_EQ(Live(), 200);
  engine_.LetGo();
  server_.reset();  // waits for all running calls
}

}  // namespace
}  // namespace chairlift
