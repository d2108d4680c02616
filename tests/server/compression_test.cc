// Compressed request bodies, whole and broken, over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/compressed.h"
#include "server/server_fixture.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;

constexpr int kRawDeflate = -15;

std::string PostGzip(std::string_view body, std::string_view fields = "") {
  return Post(kInferPath, body, "Content-Encoding: gzip\r\n" + std::string(fields));
}

class CompressionTest : public ServerTest {};

TEST_F(CompressionTest, GzipAndDeflateAreUndone) {
  Serve();
  HttpClient client(server_->http_port());
  EXPECT_EQ(client.Ask(PostGzip(Compressed(kInferBody, kGzip))).body, kInferAnswer);
  EXPECT_EQ(
      client.Ask(Post(kInferPath, Compressed(kInferBody, kZlib), "content-encoding: Deflate\r\n"))
          .body,
      kInferAnswer);
  EXPECT_EQ(client.Ask(Post(kInferPath, kInferBody, "Content-Encoding: identity\r\n")).body,
            kInferAnswer);
  // Large enough to be inflated in several slices.
  const std::string padded = std::string(5 << 20, ' ') + kInferBody;
  EXPECT_EQ(client.Ask(PostGzip(Compressed(padded, kGzip))).body, kInferAnswer);
}

TEST_F(CompressionTest, BinaryTensorsAndChunksMayBeCompressed) {
  Serve();
  const std::string header =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[40000],)"
      R"("parameters":{"binary_data_size":160000}}],"parameters":{"binary_data_output":true}})";
  std::string tensor;
  for (int i = 0; i < 40'000; ++i) {
    const auto value = static_cast<float>(i);
    tensor.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  const std::string body = Compressed(header + tensor, kGzip);
  const std::string length =
      "Inference-Header-Content-Length: " + std::to_string(header.size()) + "\r\n";
  HttpClient client(server_->http_port());
  HttpAnswer answer = client.Ask(PostGzip(body, length));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.body.ends_with(tensor));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(engine_->last_request().inputs[0].tensor.raw()) % 64, 0u);

  const size_t half = body.size() / 2;
  const auto chunk = [](std::string_view bytes) {
    return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
  };
  answer = client.Ask(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n{}"
                                  "Transfer-Encoding: chunked\r\n\r\n",
                                  kInferPath, length) +
                      chunk(std::string_view(body).substr(0, half)) +
                      chunk(std::string_view(body).substr(half)) + "0\r\n\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.body.ends_with(tensor));
}

TEST_F(CompressionTest, BombsAreRefusedByName) {
  ServerLimits limits;
  limits.max_body_bytes = 3 << 20;
  limits.max_json_bytes = 2 << 20;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  HttpClient client(server_->http_port());
  const std::string bomb = Compressed(std::string(64 << 20, ' '), kGzip);
  ASSERT_LT(bomb.size(), 100'000u);
  HttpAnswer answer = client.Ask(PostGzip(bomb));
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(ErrorOf(answer), HasSubstr("decompresses to more than the limit of 2097152 bytes"));
  answer = client.Ask(PostGzip(bomb, "Inference-Header-Content-Length: 100\r\n"));
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(ErrorOf(answer), HasSubstr("3145728 bytes"));
  // One byte decides, and the connection goes on.
  const std::string fits = std::string((2 << 20) - std::strlen(kInferBody), ' ') + kInferBody;
  EXPECT_EQ(client.Ask(PostGzip(Compressed(fits, kGzip))).body, kInferAnswer);
  EXPECT_EQ(client.Ask(PostGzip(Compressed(" " + fits, kGzip))).status, 413);
}

TEST_F(CompressionTest, WhatComesOutCountsAgainstTheBudgetOfAllBodies) {
  ServerLimits limits;
  limits.max_buffered_bytes = 1 << 20;
  Serve(FakeEngine::Answer::kOnOwnThread, limits);
  const std::string large = std::string(2 << 20, ' ') + kInferBody;
  const HttpAnswer answer = Ask(PostGzip(Compressed(large, kGzip)));
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(ErrorOf(answer), HasSubstr("1048576 bytes of request bodies"));
  // What it held is given back.
  EXPECT_EQ(Ask(Post(kInferPath, std::string(900'000, ' ') + kInferBody)).status, 200);
}

TEST_F(CompressionTest, BrokenDataIsRefusedAndTheConnectionGoesOn) {
  Serve();
  HttpClient client(server_->http_port());
  const std::string good = Compressed(kInferBody, kGzip);
  std::string flipped = good;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  const struct {
    std::string body;
    const char* error;
  } kCases[] = {
      {good.substr(0, good.size() / 2), "ends before the compressed data does"},
      {good.substr(0, good.size() - 1), "ends before the compressed data does"},
      {good.substr(0, 5), "ends before the compressed data does"},
      {good + "tail", "4 bytes follow the end"},
      {good + good, "bytes follow the end"},
      {kInferBody, "not in that format (incorrect header check)"},
      {std::string(1000, '\xff'), "not in that format"},
      {Compressed(kInferBody, kZlib), "not in that format"},
      {flipped, "not in that format (incorrect data check)"},
  };
  for (const auto& test : kCases) {
    const HttpAnswer answer = client.Ask(PostGzip(test.body));
    EXPECT_EQ(answer.status, 400) << test.error;
    EXPECT_THAT(ErrorOf(answer), HasSubstr(test.error));
    EXPECT_THAT(ErrorOf(answer), HasSubstr("Content-Encoding gzip"));
  }
  const HttpAnswer raw = client.Ask(
      Post(kInferPath, Compressed(kInferBody, kRawDeflate), "Content-Encoding: deflate\r\n"));
  EXPECT_EQ(raw.status, 400);
  EXPECT_THAT(ErrorOf(raw), HasSubstr("Content-Encoding deflate"));
  EXPECT_EQ(client.Ask(PostGzip("")).status, 400);
  EXPECT_EQ(client.Ask(PostGzip(good)).body, kInferAnswer);
}

TEST_F(CompressionTest, OtherCodingsAreRefusedByName) {
  Serve();
  for (const char* fields : {"Content-Encoding: br\r\n", "Content-Encoding: gzip, gzip\r\n",
                             "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n"}) {
    const HttpAnswer answer = Ask(Post(kInferPath, kInferBody, fields));
    EXPECT_EQ(answer.status, 415) << fields;
    EXPECT_THAT(ErrorOf(answer), HasSubstr("gzip, deflate and identity"));
  }
}

TEST_F(CompressionTest, OthersAreServedWhileABodyIsInflated) {
  Serve();
  HttpClient slow(server_->http_port());
  ASSERT_EQ(slow.Ask(Get("/v2")).status, 200);
  slow.Send(PostGzip(Compressed(std::string(60 << 20, ' ') + kInferBody, kGzip)));
  HttpClient gone(server_->http_port());
  gone.Send(PostGzip(Compressed(std::string(60 << 20, ' ') + kInferBody, kGzip)));
  gone.Close();
  EXPECT_EQ(Ask(Get("/v2")).status, 200);
  EXPECT_EQ(slow.Read().body, kInferAnswer);
}

}  // namespace
}  // namespace chairlift
