// Memory runs out at every point of a request over HTTP: it is answered rightly or with 503, or its
// connection is closed; the next one is answered as ever.
#include "server/server.h"

#include <gtest/gtest.h>

#include "out_of_memory/engine_fixture.h"
#include "server/http_client.h"

namespace chairlift {
namespace {

using testing::FailingAllocator;
using testing::SmallEngine;
using testing::TempFolder;
using testing::WriteFile;

class ServerMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FailingAllocator::Available()) GTEST_SKIP();
    engine_ = SmallEngine(1);
    const std::string file = WriteFile(folder_ / "whole.onnx", testing::DoublingModel().Bytes());
    ASSERT_TRUE(engine_->LoadModel("whole", file, {}).ok());
    ServerOptions options;
    options.http_port = 0;
    options.metrics_port = -1;
    auto server = Server::Start(*engine_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // Each attempt of a request fails once, `stride` apart.
  void FailEach(const std::string& request, int64_t stride) {
    const FailingAllocator::Exempt exempt;  // the client's own
    const auto ask = [&] { return HttpClient(server_->http_port()).Ask(request); };
    const HttpAnswer want = ask();
    ASSERT_EQ(want.status, 200) << want.body;
    int refused = 0;
    for (int64_t n = 1;; n += stride) {
      FailingAllocator::FailNth(n);
      const HttpAnswer got = ask();
      // What the server frees after its answer counts, too.
      const int64_t attempts = FailingAllocator::Stop();
      if (got.status == 200) {
        ASSERT_EQ(got.body, want.body) << n;
      } else {
        ASSERT_TRUE(got.status == 503 || got.status == 0) << got.status << " at " << n;
        ++refused;
      }
      const HttpAnswer next = ask();
      ASSERT_EQ(next.status, 200) << next.body << " after " << n;
      ASSERT_EQ(next.body, want.body);
      if (attempts < n) break;
    }
    EXPECT_GT(refused, 0);
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

std::string Infer(int rows) {
  std::string data;
  for (int i = 0; i < rows * 4; ++i) data += (i == 0 ? "" : ",") + std::to_string(i % 9);
  return Post("/v2/models/whole/infer", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" +
                                            std::to_string(rows) + R"(,4],"data":[)" + data +
                                            "]}]}");
}

TEST_F(ServerMemoryTest, AnyAllocationOfASmallRequestMayFail) { FailEach(Infer(1), 1); }

// Decoded and encoded by threads for that.
TEST_F(ServerMemoryTest, AnyAllocationOfALargeRequestMayFail) { FailEach(Infer(20'000), 29); }

TEST_F(ServerMemoryTest, AnyAllocationOfOtherRequestsMayFail) {
  FailEach(Get("/v2/models/whole"), 1);
  FailEach(Get("/v2/models/whole/config"), 1);
  FailEach(Post("/v2/repository/index", "{}"), 1);
}

}  // namespace
}  // namespace chairlift
