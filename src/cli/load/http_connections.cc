#include "cli/load/http_connections.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/excerpt.h"
#include "base/status.h"

namespace chairlift {
namespace {

using LoadClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kExchangeTimeout{60};  // for connecting and for each exchange
constexpr int kLookEveryMs = 100;                     // how often to check for late exchanges
constexpr size_t kMostHeadBytes = 1 << 20;
constexpr size_t kMostChunkBytes = 64 << 20;
constexpr size_t kBlockBytes = 64 << 10;
constexpr int kCoresPerThread = 4;  // the others are for the server, if it is on this machine

struct SocketAddress {
  sockaddr_storage address{};
  socklen_t length = 0;
};

StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return InvalidArgument("{}:{}: {}", host, port, gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.address, a->ai_addr, a->ai_addrlen);
    address.length = a->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

// The error of an answer other than 200: the protocol's {"error": …}, or the start of its body.
Status Refusal(std::string_view code, std::string_view body) {
  constexpr size_t kMost = 400;
  const auto json = nlohmann::json::parse(body.substr(0, 1 << 16), nullptr, false);
  const bool has_error = json.is_object() && json.contains("error") && json["error"].is_string();
  const std::string text = has_error ? json["error"].get<std::string>() : std::string(body);
  const std::string message = fmt::format("HTTP {}: {}", code, CutText(text, kMost));
  if (code == "400") return InvalidArgument("{}", message);
  if (code == "404") return NotFound("{}", message);
  if (code == "503") return ResourceExhausted("{}", message);
  return Internal("{}", message);
}

// The value of a field, given its name as "\r\nname:"; empty if there is none.
std::string_view Field(std::string_view head, std::string_view name) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == static_cast<unsigned char>(b);
  };
  const auto at = std::search(head.begin(), head.end(), name.begin(), name.end(), same);
  if (at == head.end()) return {};
  const std::string_view rest = head.substr(static_cast<size_t>(at - head.begin()) + name.size());
  return rest.substr(0, rest.find('\r'));
}

size_t ContentLength(std::string_view head) {
  const std::string_view field = Field(head, "\r\ncontent-length:");
  const auto digits = field.find_first_of("0123456789");
  size_t length = 0;
  if (digits != std::string_view::npos) {
    std::from_chars(field.data() + digits, field.data() + field.size(), length);
  }
  return length;
}

bool InChunks(std::string_view head) {
  return Field(head, "\r\ntransfer-encoding:").find("chunked") != std::string_view::npos;
}

}  // namespace

// One thread and its connections.
class HttpConnections::Loop {
 public:
  Loop(std::vector<SocketAddress> addresses, std::string name, int connections)
      : addresses_(std::move(addresses)),
        name_(std::move(name)),
        connections_(static_cast<size_t>(connections)) {
    for (Connection& connection : connections_) idle_.push_back(&connection);
  }
  ~Loop() {
    stopping_ = true;
    if (thread_.joinable()) {
      Wake();
      thread_.join();
    }
    if (epoll_ >= 0) close(epoll_);
    if (wake_ >= 0) close(wake_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Status Start() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (epoll_ < 0 || wake_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
      return Unavailable("cannot watch connections: {}", std::strerror(errno));
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  // Idle connections; if negative, the number of waiting requests.
  int free() const { return static_cast<int>(connections_.size()) - under_way_; }
  bool IsHere() const { return std::this_thread::get_id() == thread_.get_id(); }

  void Send(std::string_view request, Event event, Done done) {
    ++under_way_;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back({request, std::move(event), std::move(done)});
    }
    if (!IsHere()) Wake();
  }

 private:
  struct Item {
    std::string_view request;
    Event event;  // null: the answer is not a stream
    Done done;
  };
  struct Connection {
    int socket = -1;
    size_t address = 0;  // index of the address that it tries or is connected to
    bool connecting = false;
    std::optional<Item> item;
    size_t sent = 0;
    std::string received;  // for an answer in chunks: bytes not parsed yet
    bool in_chunks = false;
    std::string events;  // from chunks, up to the first incomplete one
    LoadClock::time_point deadline;
  };

  void Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  }

  void Run() {
    std::array<epoll_event, 256> events;
    auto look = LoadClock::now();
    while (!stopping_) {
      const int count =
          epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), kLookEveryMs);
      for (int i = 0; i < count; ++i) {
        auto* const connection = static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr);
        if (connection != nullptr) {
          Advance(*connection);
        } else {
          uint64_t wakes = 0;
          [[maybe_unused]] const ssize_t read_bytes = read(wake_, &wakes, sizeof wakes);
        }
        Begin();
      }
      const auto now = LoadClock::now();
      if (now - look < std::chrono::milliseconds(kLookEveryMs)) continue;
      look = now;
      for (Connection& connection : connections_) {
        if (!connection.item || connection.deadline > now) continue;
        Break(connection, fmt::format("no complete answer within {} s", kExchangeTimeout.count()));
      }
      Begin();
    }
    for (Connection& connection : connections_) {
      Break(connection, "the load ended before an answer came");
    }
    std::deque<Item> unsent;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      unsent.swap(queue_);
    }
    for (const Item& item : unsent) {
      item.done(Unavailable("the load ended before the request was sent"), {});
    }
  }

  // Assigns waiting requests to idle connections.
  void Begin() {
    while (!idle_.empty()) {
      Connection& connection = *idle_.back();
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (queue_.empty()) return;
        connection.item = std::move(queue_.front());
        queue_.pop_front();
      }
      idle_.pop_back();
      connection.sent = 0;
      connection.received.clear();
      connection.in_chunks = false;
      connection.events.clear();
      connection.deadline = LoadClock::now() + kExchangeTimeout;
      if (connection.socket < 0) {
        connection.address = 0;
        Connect(connection);
      } else {
        Advance(connection);
      }
    }
  }

  // To its address, or the next ones.
  void Connect(Connection& connection) {
    std::string why = "it has no address";
    for (; connection.address < addresses_.size(); ++connection.address) {
      const SocketAddress& to = addresses_[connection.address];
      connection.socket =
          socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      const int on = 1;
      epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                        .data = {.ptr = &connection}};
      if (connection.socket >= 0 &&
          setsockopt(connection.socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
          epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.socket, &event) == 0) {
        const auto* const address = reinterpret_cast<const sockaddr*>(&to.address);
        connection.connecting = true;
        if (connect(connection.socket, address, to.length) == 0) return Advance(connection);
        if (errno == EINPROGRESS) return;
      }
      why = std::strerror(errno);
      Close(connection);
    }
    Break(connection, NoConnection(why));
  }

  std::string NoConnection(const std::string& why) const {
    return fmt::format(
        "cannot connect to {}: {}; --url must name a running server, as `chairlift "
        "serve` prints it",
        name_, why);
  }

  // Handles possible progress.
  void Advance(Connection& connection) {
    if (connection.connecting) {
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(connection.socket, SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) {
        sockaddr_storage peer{};
        length = sizeof peer;
        // Not connected yet if it has no peer.
        if (getpeername(connection.socket, reinterpret_cast<sockaddr*>(&peer), &length) != 0)
          return;
        connection.connecting = false;
      } else if (connection.address + 1 < addresses_.size()) {
        Close(connection);
        ++connection.address;
        return Connect(connection);
      } else {
        return Break(connection, NoConnection(std::strerror(error)));
      }
    }
    while (connection.item && connection.sent < connection.item->request.size()) {
      const std::string_view left = connection.item->request.substr(connection.sent);
      const ssize_t n = send(connection.socket, left.data(), left.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) return Break(connection, "the connection broke while sending");
      connection.sent += static_cast<size_t>(n);
    }
    Receive(connection);
  }

  void Receive(Connection& connection) {
    while (connection.socket >= 0) {
      const ssize_t n = recv(connection.socket, block_.data(), block_.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0 || !connection.item) {
        return Break(connection, "the connection broke while receiving");
      }
      connection.received.append(block_.data(), static_cast<size_t>(n));
      if (connection.in_chunks) {
        if (TakeChunks(connection)) return;
        continue;
      }
      const std::string_view received = connection.received;
      const size_t head = received.find("\r\n\r\n");
      if (head == std::string_view::npos) {
        if (received.size() <= kMostHeadBytes) continue;
        return Break(connection, "an answer's header is over 1 MiB");
      }
      if (connection.item->event != nullptr && InChunks(received.substr(0, head + 2))) {
        connection.in_chunks = true;
        connection.received.erase(0, head + 4);
        if (TakeChunks(connection)) return;
        continue;
      }
      const size_t length = ContentLength(received.substr(0, head));
      if (received.size() - head - 4 < length) continue;
      const std::string_view body = received.substr(head + 4, length);
      const std::string_view code =
          received.substr(std::min(received.find(' '), received.size() - 4) + 1, 3);
      return End(connection, code == "200" ? absl::OkStatus() : Refusal(code, body), body);
    }
  }

  // Reports the events of complete chunks. Returns whether the exchange has ended.
  bool TakeChunks(Connection& connection) {
    constexpr std::string_view kEvent = "data: ";
    // A stream may take longer in total than a single answer.
    connection.deadline = LoadClock::now() + kExchangeTimeout;
    std::string_view left = connection.received;
    while (true) {
      const size_t line = left.find("\r\n");
      if (line == std::string_view::npos) break;
      size_t size = 0;
      const auto [end, error] = std::from_chars(left.data(), left.data() + line, size, 16);
      if (error != std::errc() || end != left.data() + line || size > kMostChunkBytes) {
        Break(connection, "a chunk of an answer has no size");
        return true;
      }
      if (left.size() < line + 2 + size + 2) break;
      connection.events.append(left.substr(line + 2, size));
      left.remove_prefix(line + 2 + size + 2);
      std::string_view events = connection.events;
      for (size_t stop; (stop = events.find("\n\n")) != std::string_view::npos;) {
        const std::string_view event = events.substr(0, stop);
        if (event.starts_with(kEvent)) connection.item->event(event.substr(kEvent.size()));
        events.remove_prefix(stop + 2);
      }
      connection.events.erase(0, connection.events.size() - events.size());
      if (size == 0) {
        End(connection, absl::OkStatus(), {});
        return true;
      }
    }
    connection.received.erase(0, connection.received.size() - left.size());
    return false;
  }

  void End(Connection& connection, const Status& status, std::string_view body) {
    const Item item = *std::exchange(connection.item, std::nullopt);
    idle_.push_back(&connection);
    --under_way_;
    item.done(status, body);
  }

  void Break(Connection& connection, const std::string& why) {
    Close(connection);
    if (connection.item) End(connection, Unavailable("{}", why), {});
  }

  static void Close(Connection& connection) {
    if (connection.socket >= 0) close(connection.socket);
    connection.socket = -1;
    connection.connecting = false;
  }

  const std::vector<SocketAddress> addresses_;
  const std::string name_;
  int epoll_ = -1;
  int wake_ = -1;
  std::atomic<bool> stopping_{false};
  std::atomic<int> under_way_{0};
  std::mutex mutex_;
  std::deque<Item> queue_;  // guarded by mutex_; bounded by the schedule's length
  // Used by the thread only:
  std::vector<Connection> connections_;
  std::vector<Connection*> idle_;
  std::array<char, kBlockBytes> block_;
  std::thread thread_;
};

StatusOr<std::unique_ptr<HttpConnections>> HttpConnections::Create(const std::string& host,
                                                                   const std::string& port,
                                                                   int connections) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(host, port));
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = std::clamp(cores / kCoresPerThread, 1, std::max(connections, 1));
  std::unique_ptr<HttpConnections> client(new HttpConnections);
  for (int i = 0; i < threads; ++i) {
    const int share = (connections + threads - 1 - i) / threads;
    client->loops_.push_back(
        std::make_unique<Loop>(addresses, fmt::format("{}:{}", host, port), std::max(share, 1)));
    CHAIRLIFT_RETURN_IF_ERROR(client->loops_.back()->Start());
  }
  return client;
}

HttpConnections::~HttpConnections() = default;

HttpConnections::Loop& HttpConnections::Best() {
  Loop* best = nullptr;
  for (const std::unique_ptr<Loop>& loop : loops_) {
    if (loop->IsHere() && loop->free() > 0) {
      best = loop.get();
      break;
    }
    if (best == nullptr || loop->free() > best->free()) best = loop.get();
  }
  return *best;
}

void HttpConnections::Send(std::string_view request, Done done) {
  Best().Send(request, nullptr, std::move(done));
}

void HttpConnections::Stream(std::string_view request, Event event, Done done) {
  Best().Send(request, std::move(event), std::move(done));
}

StatusOr<std::string> HttpConnections::Exchange(std::string_view request) {
  std::promise<StatusOr<std::string>> answered;
  Send(request, [&](const Status& status, std::string_view body) {
    if (status.ok()) {
      answered.set_value(std::string(body));
    } else {
      answered.set_value(status);
    }
  });
  return answered.get_future().get();
}

}  // namespace chairlift
