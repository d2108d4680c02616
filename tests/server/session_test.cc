// A connection against a model of it: whatever the segments in which requests come, each is
// answered once, in order, with what is its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "server/compressed.h"
#include "server/server_fixture.h"

namespace chairlift {
namespace {

using Random = std::mt19937;

int Between(int least, int most, Random& random) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

// The first letter of a request's id says when it is answered: 'n' on the caller's thread, 's' on
// the engine's, 'l' once the test says so.
class PacedEngine final : public FakeEngine {
 public:
  PacedEngine() : FakeEngine(Answer::kOnCallersThread), thread_([this] { AnswerSoon(); }) {}
  ~PacedEngine() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  RequestId InferAsync(InferRequest request, InferCallback callback) override {
    const char pace = request.id.empty() ? 'n' : request.id[0];
    std::unique_lock<std::mutex> lock(mutex_);
    const RequestId id = ++last_id_;
    if (pace == 's' || pace == 'l') {
      auto& queue = pace == 's' ? soon_ : late_;
      queue.push_back({id, std::move(request), std::move(callback)});
      lock.unlock();
      changed_.notify_all();
      return id;
    }
    lock.unlock();
    FakeEngine::InferAsync(std::move(request), std::move(callback));
    return id;
  }

  void Cancel(RequestId id) override {
    std::unique_lock<std::mutex> lock(mutex_);
    for (auto it = late_.begin(); it != late_.end(); ++it) {
      if (it->id != id) continue;
      const Held held = std::move(*it);
      late_.erase(it);
      lock.unlock();
      return held.callback(absl::CancelledError("cancelled"));
    }
  }

  // Answers the request of one connection that is held back, on this thread; waits for it.
  void ReleaseLate() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [this] { return !late_.empty(); })) {
      ADD_FAILURE() << "the request never reached the engine";
      return;
    }
    Held held = std::move(late_.front());
    late_.pop_front();
    lock.unlock();
    FakeEngine::InferAsync(std::move(held.request), std::move(held.callback));
  }

 private:
  struct Held {
    RequestId id;
    InferRequest request;
    InferCallback callback;
  };

  void AnswerSoon() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !soon_.empty(); });
      if (soon_.empty()) return;
      Held held = std::move(soon_.front());
      soon_.pop_front();
      lock.unlock();
      FakeEngine::InferAsync(std::move(held.request), std::move(held.callback));
      held = Held();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Held> soon_;
  std::deque<Held> late_;
  RequestId last_id_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

// A request and what the model of a connection says of its answer.
struct Exchange {
  std::string request = {};
  int status = 200;
  std::string body = {};   // exactly; empty: not looked at
  std::string error = {};  // part of the message
  bool late = false;
  bool head_only = false;
  bool events = false;  // one event with `body`, in chunks
  bool closes = false;  // the server closes behind the answer
};

std::string Chunked(std::string_view body, std::string_view fields, Random& random) {
  std::string request = "POST " + std::string(kInferPath) +
                        " HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n" +
                        std::string(fields) + "\r\n";
  while (!body.empty()) {
    const int longest = Between(0, 3, random) == 0 ? 40'000 : 100;
    const auto size = static_cast<size_t>(Between(1, longest, random));
    const std::string_view chunk = body.substr(0, size);
    request += fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk);
    body.remove_prefix(chunk.size());
  }
  return request + "0\r\n\r\n";
}

// An inference of a kind of its own, over `values` that no other request has.
Exchange Inference(int number, Random& random) {
  const char pace = "nsl"[Between(0, 2, random)];
  const std::string id = fmt::format("{}{}", pace, number);
  Exchange exchange;
  exchange.late = pace == 'l';
  std::string body, fields;
  if (Between(0, 2, random) == 0) {  // binary
    const int count = Between(1, 3, random) == 1 ? Between(1, 20'000, random) : 3;
    const std::vector<float> values(static_cast<size_t>(count), static_cast<float>(number));
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    body = fmt::format(R"({{"id":"{}","inputs":[{{"name":"x","datatype":"FP32","shape":[{}],)"
                       R"("parameters":{{"binary_data_size":{}}}}}],)"
                       R"("parameters":{{"binary_data_output":true}}}})",
                       id, count, bytes.size());
    fields = fmt::format("Inference-Header-Content-Length: {}\r\n", body.size());
    body += bytes;
    exchange.body = fmt::format(R"({{"id":"{}","model_name":"identity","model_version":"1",)"
                                R"("outputs":[{{"name":"y","datatype":"FP32","shape":[{}],)"
                                R"("parameters":{{"binary_data_size":{}}}}}]}})",
                                id, count, bytes.size()) +
                    bytes;
  } else {
    body = fmt::format(R"({{"id":"{}","inputs":[{{"name":"x","datatype":"FP32","shape":[2],)"
                       R"("data":[{},-1.5]}}]}})",
                       id, number);
    if (Between(0, 3, random) == 0) body.insert(1, Between(1, 40'000, random), ' ');
    exchange.body = fmt::format(R"({{"id":"{}","model_name":"identity","model_version":"1",)"
                                R"("outputs":[{{"name":"y","datatype":"FP32","shape":[2],)"
                                R"("data":[{},-1.5]}}]}})",
                                id, number);
  }
  if (Between(0, 5, random) == 0) {
    body = Compressed(body, kGzip);
    fields += "Content-Encoding: gzip\r\n";
  }
  const bool chunked = Between(0, 2, random) == 0;
  exchange.request = chunked ? Chunked(body, fields, random) : Post(kInferPath, body, fields);
  return exchange;
}

Exchange StreamExchange(int number, Random& random) {
  const char pace = "nsl"[Between(0, 2, random)];
  Exchange exchange;
  exchange.late = pace == 'l';
  exchange.events = true;
  exchange.request = Post("/v2/models/identity/generate_stream",
                          fmt::format(R"({{"id":"{}{}","x":[{}]}})", pace, number, number));
  exchange.body =
      fmt::format(R"({{"id":"{}{}","model_name":"identity","model_version":"1","y":[{}]}})", pace,
                  number, number);
  return exchange;
}

Exchange AnyExchange(int number, Random& random) {
  switch (Between(0, 12, random)) {
    case 0:
      return {.request = Get("/v2/health/live")};
    case 1:
      return {.request = "HEAD /v2 HTTP/1.1\r\nHost: test\r\n\r\n", .head_only = true};
    case 2:
      return {.request = Get(fmt::format("/v2/nothing/{}", number)),
              .status = 404,
              .error = "no such path"};
    case 3:
      return {.request = Post(kInferPath, R"({"inputs":[{"name":"x","data":)"),
              .status = 400,
              .error = "JSON"};
    case 4:
      return {.request = Post(fmt::format("/v2/models/nobody{}/infer", number), kInferBody),
              .status = 404,
              .error = fmt::format("nobody{}", number)};
    case 5:
      return {.request = Chunked("[1,", "", random), .status = 400, .error = "JSON"};
    case 6:
      return StreamExchange(number, random);
    default:
      return Inference(number, random);
  }
}

// Nothing comes after one of these.
Exchange LastExchange(Random& random) {
  switch (Between(0, 3, random)) {
    case 0:
      return {.request = "GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
              .closes = true};
    case 1:
      return {.request = "not HTTP\r\n\r\n",
              .status = 400,
              .error = "not a valid HTTP request",
              .closes = true};
    case 2:
      return {.request = "POST " + std::string(kInferPath) +
                         " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
              .status = 400,
              .error = "chunk",
              .closes = true};
    default:
      return {.request = Get("/v2/health/live")};
  }
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    ServerOptions options;
    options.http_port = 0;
    options.metrics_port = -1;
    auto server = Server::Start(engine_, options);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void ExpectAnswer(const Exchange& exchange, HttpClient& client) {
    if (exchange.late) engine_.ReleaseLate();
    HttpAnswer answer = exchange.events ? client.ReadHead() : client.Read(exchange.head_only);
    ASSERT_EQ(answer.status, exchange.status) << exchange.request.substr(0, 200) << answer.body;
    EXPECT_EQ(answer.Field("Connection"), exchange.closes ? "close" : "");
    if (exchange.events) {
      EXPECT_EQ(client.ReadChunk(), "data: " + exchange.body + "\n\n");
      EXPECT_EQ(client.ReadChunk(), "");
    } else if (!exchange.error.empty()) {
      EXPECT_THAT(ErrorOf(answer), ::testing::HasSubstr(exchange.error));
    } else if (!exchange.body.empty()) {
      EXPECT_EQ(answer.body, exchange.body);
    }
    EXPECT_TRUE(!exchange.closes || client.AtEnd());
  }

  // Plays one connection; `seed` says everything of it.
  void Play(unsigned seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<Exchange> exchanges;
    const int count = Between(1, 12, random);
    for (int i = 0; i < count; ++i) exchanges.push_back(AnyExchange(i + 1, random));
    exchanges.push_back(LastExchange(random));
    std::string bytes;
    std::vector<size_t> ends;
    for (const Exchange& exchange : exchanges) {
      bytes += exchange.request;
      ends.push_back(bytes.size());
    }

    HttpClient client(server_->http_port());
    HttpClient other(server_->http_port());
    const int longest = std::array{100, 1000, 20'000, 1'000'000}[Between(0, 3, random)];
    size_t sent = 0;
    size_t answered = 0;
    while (answered < exchanges.size() && !HasFatalFailure()) {
      if (sent < bytes.size()) {
        size_t end =
            std::min(sent + static_cast<size_t>(Between(1, longest, random)), bytes.size());
        const auto border = std::upper_bound(ends.begin(), ends.end(), sent);
        if (Between(0, 2, random) == 0) end = *border;  // a request's end is a segment's end
        client.Send(std::string_view(bytes).substr(sent, end - sent));
        sent = end;
      }
      const auto due =
          static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), sent) - ends.begin());
      const int what = Between(0, 5, random);
      // One thread serves both connections: what was sent before has been read.
      if (what <= 1) {
        ASSERT_EQ(other.Ask(Get("/v2/health/live")).status, 200);
      }
      if (what != 1 && what <= 3 && sent < bytes.size()) continue;
      const size_t until = what == 4 && answered < due ? answered + 1 : due;
      while (answered < until && !HasFatalFailure()) ExpectAnswer(exchanges[answered++], client);
    }
  }

  PacedEngine engine_;
  std::unique_ptr<Server> server_;
};

TEST_F(SessionTest, ARequestIsNeverReadFromBytesOfAnEarlierOne) {
  HttpClient client(server_->http_port());
  const auto request = [](std::string_view id) {
    return Post(kInferPath, fmt::format(R"({{"id":"{}","inputs":[]}})", id));
  };
  const auto answered_id = [&] { return json::parse(client.Read().body, nullptr, false)["id"]; };
  client.Send(request("s1") + request("s2"));
  EXPECT_EQ(answered_id(), "s1");
  EXPECT_EQ(answered_id(), "s2");
  client.Send(request("s3"));
  EXPECT_EQ(answered_id(), "s3");
}

TEST_F(SessionTest, AnswersAreThoseOfTheRequestsHoweverTheyCome) {
  for (unsigned seed = 1; seed <= 300 && !HasFailure(); ++seed) Play(seed);
}

}  // namespace
}  // namespace chairlift
