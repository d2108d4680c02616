// A raw socket to a server under test: what is sent is exactly what the test says.
#ifndef CHAIRLIFT_TESTS_SERVER_HTTP_CLIENT_H_
#define CHAIRLIFT_TESTS_SERVER_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace chairlift {

struct HttpAnswer {
  int status = 0;  // 0: the server closed without an answer
  std::string head;
  std::string body;

  // Value of a field, empty where it is missing.
  std::string Field(std::string_view name) const {
    const std::string key = "\r\n" + std::string(name) + ": ";
    const size_t at = head.find(key);
    if (at == std::string::npos) return {};
    const size_t begin = at + key.size();
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class HttpClient {
 public:
  // `from`: the client's own address, in host byte order.
  explicit HttpClient(int port, uint32_t from = INADDR_LOOPBACK) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const timeval limit{60, 0};  // a hang fails the test instead of hanging it
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(from);
    if (from != INADDR_LOOPBACK) {
      ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    }
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  // Ends what this side sends; answers may still come.
  void EndSending() { ::shutdown(fd_, SHUT_WR); }
  // Closes with a reset, as a client that crashed does.
  void Reset() {
    const linger abort{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
    Close();
  }

  // False where the server has closed.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Whether something has come that was not read yet.
  bool HasAnswer() {
    char byte;
    return !buffer_.empty() || ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }

  // The head of a response.
  HttpAnswer ReadHead() {
    HttpAnswer answer;
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return answer;
    }
    answer.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    answer.status = std::atoi(answer.head.c_str() + std::strlen("HTTP/1.1 "));
    return answer;
  }

  // One chunk of a body; empty for the last, "broken" if there is no chunk.
  std::string ReadChunk() {
    size_t end;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (!Fill()) return "broken";
    }
    const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
    while (buffer_.size() < end + 2 + size + 2) {
      if (!Fill()) return "broken";
    }
    std::string chunk = buffer_.substr(end + 2, size);
    if (buffer_.compare(end + 2 + size, 2, "\r\n") != 0) return "broken";
    buffer_.erase(0, end + 2 + size + 2);
    return chunk;
  }

  // All that comes until the server closes.
  std::string ReadToEnd() {
    while (Fill()) {
    }
    return std::exchange(buffer_, {});
  }

  // One response, by its Content-Length; `no_body` after HEAD.
  HttpAnswer Read(bool no_body = false) {
    HttpAnswer answer = ReadHead();
    if (answer.status == 0) return answer;
    const size_t length = std::strtoul(answer.Field("Content-Length").c_str(), nullptr, 10);
    if (no_body || answer.status == 100) return answer;
    while (buffer_.size() < length) {
      if (!Fill()) return answer;
    }
    answer.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return answer;
  }

  HttpAnswer Ask(std::string_view request) {
    Send(request);
    return Read();
  }

  // True once the server has closed its side, with nothing more sent.
  bool AtEnd() { return buffer_.empty() && !Fill() && closed_; }
  bool was_reset() const { return reset_; }

 private:
  bool Fill() {
    char chunk[65536];
    const ssize_t got = ::recv(fd_, chunk, sizeof(chunk), 0);
    reset_ = got < 0 && errno == ECONNRESET;
    if (got == 0 || reset_) closed_ = true;
    if (got <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(got));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  bool closed_ = false;
  bool reset_ = false;
  std::string buffer_;
};

// "POST path HTTP/1.1" with a Content-Length and whatever `fields` adds ("Name: value\r\n").
inline std::string Post(std::string_view path, std::string_view body,
                        std::string_view fields = "") {
  std::string request = "POST ";
  request.append(path).append(" HTTP/1.1\r\nHost: localhost\r\n").append(fields);
  request.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n\r\n");
  request.append(body);
  return request;
}

inline std::string Get(std::string_view path) {
  return std::string("GET ").append(path).append(" HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_SERVER_HTTP_CLIENT_H_
