#include "cli/load/http_connections.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: chairlift\r\n\r\n";

// A port of the loopback device with a listening socket; nothing answers by itself.
class Listener {
 public:
  explicit Listener(bool listens = true) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listens ? listen(socket_, 8) : 0, 0);
    socklen_t length = sizeof address;
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = std::to_string(ntohs(address.sin_port));
  }
  ~Listener() { close(socket_); }

  const std::string& port() const { return port_; }

  // Takes a connection, answers a request on it with each of these, piece by piece, and closes it.
  void Answer(const std::vector<std::vector<std::string>>& answers) const {
    const int connection = accept(socket_, nullptr, nullptr);
    for (const std::vector<std::string>& pieces : answers) {
      ExpectRequest(connection);
      for (const std::string& piece : pieces) {
        EXPECT_EQ(send(connection, piece.data(), piece.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(piece.size()));
      }
    }
    close(connection);
  }

  // Waits for a connection and a whole request on it.
  int Take() const {
    const int connection = accept(socket_, nullptr, nullptr);
    ExpectRequest(connection);
    return connection;
  }

 private:
  static void ExpectRequest(int connection) {
    std::string request(kRequest.size(), '\0');
    EXPECT_EQ(recv(connection, request.data(), request.size(), MSG_WAITALL),
              static_cast<ssize_t>(request.size()));
    EXPECT_EQ(request, kRequest);
  }

  int socket_;
  std::string port_;
};

TEST(HttpConnectionsTest, AnAnswerMayComeInPieces) {
  const Listener listener;
  std::thread server([&] {
    listener.Answer(
        {{"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r", "\n\r", "\nab", "cde"},
         {"HTTP/1.1 404 Not Found\r\nContent-Length: 16\r\n\r\n{\"error\":\"gone\"", "}"},
         {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"}});
  });
  const auto connections = HttpConnections::Create("127.0.0.1", listener.port(), 1);
  ASSERT_TRUE(connections.ok());
  const StatusOr<std::string> whole = (*connections)->Exchange(kRequest);
  EXPECT_EQ(whole.value_or(""), "abcde");
  const Status missing = (*connections)->Exchange(kRequest).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "HTTP 404: gone");
  const Status broken = (*connections)->Exchange(kRequest).status();
  EXPECT_TRUE(absl::IsUnavailable(broken));
  EXPECT_EQ(broken.message(), "the connection broke while receiving");
  server.join();
}

TEST(HttpConnectionsTest, EventsComeAsTheirChunksDo) {
  const Listener listener;
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::thread server([&] {
    listener.Answer(
        {{head + "9\r\ndata: a\n\n\r", "\n12\r\ndata: b\n\ndata: c\n\n\r\n", "0\r\n\r\n"},
         // An event in two chunks.
         {head, "5\r\ndata:\r\n4\r\n d\n\n\r\n0\r\n\r\n"},
         {"HTTP/1.1 503 No\r\nContent-Length: 16\r\n\r\n{\"error\":\"full\"}"},
         {head, "x\r\n"}});
  });
  const auto connections = HttpConnections::Create("127.0.0.1", listener.port(), 1);
  ASSERT_TRUE(connections.ok());
  const auto ask = [&](std::vector<std::string>& events) {
    std::promise<Status> ended;
    (*connections)
        ->Stream(
            kRequest, [&](std::string_view data) { events.emplace_back(data); },
            [&](const Status& status, std::string_view) { ended.set_value(status); });
    return ended.get_future().get();
  };
  std::vector<std::string> events;
  EXPECT_TRUE(ask(events).ok());
  EXPECT_THAT(events, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(ask(events).ok());
  EXPECT_THAT(events, ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(ask(events).message(), "HTTP 503: full");
  EXPECT_EQ(ask(events).message(), "a chunk of an answer has no size");
  server.join();
}

TEST(HttpConnectionsTest, WhereNobodyListensIsNamed) {
  const Listener closed(false);
  const std::string& port = closed.port();
  const auto connections = HttpConnections::Create("127.0.0.1", port, 2);
  ASSERT_TRUE(connections.ok());
  const Status refused = (*connections)->Exchange(kRequest).status();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot connect to 127.0.0.1:" + port));
}

TEST(HttpConnectionsTest, WhatHasNoAnswerAtTheEndFails) {
  const Listener silent;
  std::vector<std::string> messages;
  int taken = -1;
  {
    auto connections = HttpConnections::Create("127.0.0.1", silent.port(), 1);
    ASSERT_TRUE(connections.ok());
    std::mutex mutex;
    for (int i = 0; i < 2; ++i) {
      (*connections)->Send(kRequest, [&](const Status& status, std::string_view) {
        const std::lock_guard<std::mutex> lock(mutex);
        messages.emplace_back(status.message());
      });
    }
    taken = silent.Take();
  }
  close(taken);
  EXPECT_THAT(messages, ElementsAre("the load ended before an answer came",
                                    "the load ended before the request was sent"));
}

}  // namespace
}  // namespace chairlift
