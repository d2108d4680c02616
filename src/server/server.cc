// Listening, the io threads, and the order in which everything is taken down.
#include "server/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <vector>

#include "base/status.h"
#include "server/http/io_loop.h"
#include "server/http/server_context.h"
#include "server/http/session.h"

namespace chairlift {
namespace {

using boost::asio::ip::tcp;
using http::IoLoop;
using http::Port;
using http::ServerContext;
using http::Session;

// Connections over the limit that may be open at once, each for as long as its 503 takes.
constexpr int kMostRefusing = 128;
constexpr int kMetricsConnections = 64;
constexpr std::chrono::milliseconds kAcceptRetry{100};

constexpr int64_t kMostInt = 1 << 20;
constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int64_t kMostMs = 86'400'000;

int64_t Signed(size_t bytes) {
  return static_cast<int64_t>(std::min(bytes, static_cast<size_t>(kMostBytes) + 1));
}

Status Validate(const ServerOptions& options) {
  const ServerLimits& limits = options.limits;
  if (options.io_threads < 1 || options.io_threads > 64) {
    return InvalidArgument("io_threads is {}; it must be 1 to 64", options.io_threads);
  }
  for (const int port : {options.http_port, options.metrics_port}) {
    if (port > 65535 || port < -1) return InvalidArgument("port {} is not 0 to 65535", port);
  }
  if (options.http_port == -1) return InvalidArgument("the HTTP port cannot be -1");
  const struct {
    const char* name;
    int64_t value, least, most;
  } ranges[] = {
      {"max_connections", limits.max_connections, 1, kMostInt},
      {"max_header_bytes", Signed(limits.max_header_bytes), 256, int64_t{16} << 20},
      {"max_body_bytes", Signed(limits.max_body_bytes), 1, kMostBytes},
      {"max_json_bytes", Signed(limits.max_json_bytes), 1, int64_t{2} << 30},
      {"max_buffered_bytes", Signed(limits.max_buffered_bytes), 1, kMostBytes},
      {"max_name_bytes", Signed(limits.max_name_bytes), 1, int64_t{1} << 20},
      {"max_json_depth", limits.max_json_depth, 4, 1024},
      {"max_tensors", limits.max_tensors, 1, kMostInt},
      {"max_rank", limits.max_rank, 0, kMostInt},
      {"max_tensor_elements", limits.max_tensor_elements, 1, kMostBytes},
      {"max_admin_requests", limits.max_admin_requests, 1, kMostInt},
      {"header_timeout (ms)", limits.header_timeout.count(), 1, kMostMs},
      {"body_timeout (ms)", limits.body_timeout.count(), 1, kMostMs},
      {"idle_timeout (ms)", limits.idle_timeout.count(), 1, kMostMs},
  };
  for (const auto& [name, value, least, most] : ranges) {
    if (value >= least && value <= most) continue;
    return InvalidArgument("{} is {}; it must be {} to {}", name, value, least, most);
  }
  return absl::OkStatus();
}

// The soft limit on open files up to the hard one, where so many connections need it.
void AllowConnections(int connections) {
  constexpr rlim_t kOtherFiles = 256;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(connections) + kMostRefusing + kOtherFiles;
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// Accepts on one port and deals the connections out to the loops.
class Listener {
 public:
  Listener(std::shared_ptr<ServerContext> context, std::vector<IoLoop*> loops, Port port)
      : context_(std::move(context)),
        loops_(std::move(loops)),
        port_(port),
        acceptor_(loops_[0]->io()),
        retry_(loops_[0]->io()) {}

  Status Bind(const std::string& address, int port) {
    boost::system::error_code ec;
    const boost::asio::ip::address ip =
        boost::asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, ec);
    if (ec) return InvalidArgument("'{}' is not a numeric IP address", address);
    const tcp::endpoint endpoint(ip, static_cast<uint16_t>(port));
    const auto failed = [&] {
      return Unavailable("cannot listen on {} port {}: {}", address, port, ec.message());
    };
    if (acceptor_.open(endpoint.protocol(), ec)) return failed();
    if (acceptor_.set_option(tcp::acceptor::reuse_address(true), ec)) return failed();
    if (acceptor_.bind(endpoint, ec)) return failed();
    if (acceptor_.listen(boost::asio::socket_base::max_listen_connections, ec)) return failed();
    bound_port_ = acceptor_.local_endpoint(ec).port();
    return absl::OkStatus();
  }

  int bound_port() const { return bound_port_; }

  // On loop 0 from here on.
  void Accept() {
    IoLoop* const loop = loops_[next_++ % loops_.size()];
    acceptor_.async_accept(loop->io(),
                           [this, loop](const boost::system::error_code& ec, tcp::socket socket) {
                             if (!acceptor_.is_open()) return;
                             if (ec) return RetryLater();
                             Serve(loop, std::move(socket));
                             Accept();
                           });
  }

  void Close() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }

 private:
  // Out of file descriptors, most likely: some will be free again.
  void RetryLater() {
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](const boost::system::error_code& ec) {
      if (!ec && acceptor_.is_open()) Accept();
    });
  }

  void Serve(IoLoop* loop, tcp::socket socket) {
    const int limit =
        port_ == Port::kInference ? context_->limits.max_connections : kMetricsConnections;
    http::Tally& open = context_->connections(port_);
    const int before = open.count();
    if (before >= limit) ++context_->metrics.connections_refused;
    if (before >= limit + kMostRefusing) return;
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    open.Add();
    if (port_ == Port::kInference) ++context_->metrics.connections;
    const auto session = std::make_shared<Session>(context_, loop, std::move(socket), port_);
    boost::asio::dispatch(loop->io(), [loop, session, refuse = before >= limit] {
      loop->Add(session);
      refuse ? session->Refuse() : session->Start();
    });
  }

  const std::shared_ptr<ServerContext> context_;
  const std::vector<IoLoop*> loops_;
  const Port port_;
  tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  size_t next_ = 0;
  int bound_port_ = -1;
};

class HttpServer final : public Server {
 public:
  HttpServer(Engine& engine, const ServerOptions& options)
      : context_(std::make_shared<ServerContext>(engine, options.limits)) {
    std::vector<IoLoop*> loops;
    for (int i = 0; i < options.io_threads; ++i) {
      loops_.push_back(std::make_unique<IoLoop>(options.limits));
      loops.push_back(loops_.back().get());
    }
    inference_ = std::make_unique<Listener>(context_, loops, Port::kInference);
    metrics_ = std::make_unique<Listener>(context_, std::vector<IoLoop*>{loops[0]}, Port::kMetrics);
  }
  ~HttpServer() override { Stop(); }

  Status Bind(const ServerOptions& options) {
    CHAIRLIFT_RETURN_IF_ERROR(inference_->Bind(options.address, options.http_port));
    if (options.metrics_port < 0) return absl::OkStatus();
    return metrics_->Bind(options.address, options.metrics_port);
  }

  void Run() {
    inference_->Accept();
    if (metrics_->bound_port() >= 0) metrics_->Accept();
    for (const auto& loop : loops_) loop->Start();
    running_ = true;
  }

  int http_port() const override { return inference_->bound_port(); }
  int metrics_port() const override { return metrics_->bound_port(); }

  Status Drain(std::chrono::milliseconds timeout) override {
    bool drained = true;
    if (running_) {
      context_->draining = true;
      OnEachLoop([this](IoLoop* loop) {
        if (loop == loops_[0].get()) inference_->Close();
        for (const auto& session : loop->sessions()) session->Drain();
      });
      drained = context_->connections(Port::kInference).AwaitZero(timeout);
    }
    Stop();
    if (drained) return absl::OkStatus();
    return DeadlineExceeded("connections were still busy after {} ms and were cut off",
                            timeout.count());
  }

  void Stop() override {
    if (!running_.exchange(false)) return;
    context_->draining = true;
    const auto close = [this](IoLoop* loop) {
      if (loop == loops_[0].get()) {
        inference_->Close();
        metrics_->Close();
      }
      for (const auto& session : loop->sessions()) session->Close();
    };
    OnEachLoop(close);
    OnEachLoop(close);  // those accepted by loop 0 while another loop was being closed
    context_->calls.AwaitZero();
    for (const auto& loop : loops_) loop->Stop();
  }

 private:
  // Runs `task` on each loop's thread, one after another, and waits for it.
  template <typename Task>
  void OnEachLoop(Task task) {
    for (const auto& loop : loops_) {
      std::promise<void> done;
      boost::asio::post(loop->io(), [&] {
        task(loop.get());
        done.set_value();
      });
      done.get_future().wait();
    }
  }

  std::shared_ptr<ServerContext> context_;
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::unique_ptr<Listener> inference_;
  std::unique_ptr<Listener> metrics_;
  std::atomic<bool> running_{false};
};

}  // namespace

StatusOr<std::unique_ptr<Server>> Server::Start(Engine& engine, const ServerOptions& options) {
  CHAIRLIFT_RETURN_IF_ERROR(Validate(options));
  AllowConnections(options.limits.max_connections);
  auto server = std::make_unique<HttpServer>(engine, options);
  CHAIRLIFT_RETURN_IF_ERROR(server->Bind(options));
  server->Run();
  return server;
}

}  // namespace chairlift
