// A server on free ports over a fake engine, and one request of every kind to send to it.
#ifndef CHAIRLIFT_TESTS_SERVER_SERVER_FIXTURE_H_
#define CHAIRLIFT_TESTS_SERVER_SERVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "server/fake_engine.h"
#include "server/http_client.h"
#include "server/server.h"

namespace chairlift {

using nlohmann::json;

inline constexpr char kInferPath[] = "/v2/models/identity/infer";
inline constexpr char kInferBody[] =
    R"({"id":"r1","inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1.5,-2]}]})";
inline constexpr char kInferAnswer[] =
    R"({"id":"r1","model_name":"identity","model_version":"1","outputs":)"
    R"([{"name":"y","datatype":"FP32","shape":[1,2],"data":[1.5,-2]}]})";

class ServerTest : public ::testing::Test {
 protected:
  void Serve(FakeEngine::Answer answer = FakeEngine::Answer::kOnOwnThread, ServerLimits limits = {},
             std::vector<std::string> cors_origins = {}, bool model_control = true) {
    server_.reset();
    engine_ = std::make_unique<FakeEngine>(answer);
    ServerOptions options;
    options.model_control = model_control;
    options.http_port = 0;
    options.metrics_port = 0;
    options.limits = limits;
    options.cors_origins = std::move(cors_origins);
    auto server = Server::Start(*engine_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // One request on a connection of its own.
  HttpAnswer Ask(std::string_view request) { return HttpClient(server_->http_port()).Ask(request); }
  std::string Metrics() { return HttpClient(server_->metrics_port()).Ask(Get("/metrics")).body; }

  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Server> server_;
};

// The message of an error body, which must hold nothing else.
inline std::string ErrorOf(const HttpAnswer& answer) {
  const json parsed = json::parse(answer.body, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("error") || parsed.size() != 1) {
    return "not an error body: " + answer.body;
  }
  return parsed["error"];
}

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_SERVER_SERVER_FIXTURE_H_
