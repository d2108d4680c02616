// Listening, the io threads, and the order of shutdown.
#include "server/server.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
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

// Connections over the limit that may be open at the same time, each until its 503 has been sent.
constexpr int kMostRefusing = 128;
constexpr int kClientsRefused = 4;  // clients that may use all of these

constexpr int kMetricsConnections = 64;
struct Connections {
  int most = 0, of_client = 0;
  int refusing = 0;
};

constexpr int64_t kMostInt = 1 << 20;
constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int64_t kMostMs = 86'400'000;

int64_t Signed(size_t bytes) {
  return static_cast<int64_t>(std::min(bytes, static_cast<size_t>(kMostBytes) + 1));
}

// "::1" of "[::1]".
std::string_view WithoutBrackets(std::string_view address) {
  if (address.size() < 2 || address.front() != '[' || address.back() != ']') return address;
  const std::string_view inner = address.substr(1, address.size() - 2);
  return inner.find(':') == std::string_view::npos ? address : inner;
}

// scheme://host[:port], with nothing after it.
bool IsOrigin(std::string_view origin) {
  if (origin == "*" || origin == "null") return true;
  const size_t scheme = origin.find("://");
  if (scheme == 0 || scheme == std::string_view::npos) return false;
  const std::string_view host = origin.substr(scheme + 3);
  return !host.empty() && std::all_of(origin.begin(), origin.end(), [](unsigned char c) {
    return c > ' ' && c < 127 && c != ',' && c != '*';
  }) && host.find_first_of("/?#@") == std::string_view::npos;
}

protocol::OtherNames OtherNamesOf(const ServerOptions& options) {
  const auto has = [&](const char* server) {
    return std::count(options.extra_metrics.begin(), options.extra_metrics.end(), server) > 0;
  };
  return {.triton = has("triton"), .vllm = has("vllm")};
}

Status Validate(const ServerOptions& options) {
  const ServerLimits& limits = options.limits;
  if (options.io_threads < 1 || options.io_threads > 64) {
    return InvalidArgument("io_threads is {}; it must be 1 to 64", options.io_threads);
  }
  for (const int port : {options.http_port, options.metrics_port}) {
    if (port > 65535 || port < -1)
      return InvalidArgument("port {} is out of range; it must be 0 to 65535", port);
  }
  if (options.codec_threads < 1 || options.codec_threads > 64) {
    return InvalidArgument("codec_threads is {}; it must be 1 to 64", options.codec_threads);
  }
  if (options.http_port == -1) return InvalidArgument("http_port is -1; it must be 0 to 65535");
  for (const std::string& origin : options.cors_origins) {
    if (IsOrigin(origin)) continue;
    return InvalidArgument(
        "cors_origins: '{}' is not an origin; write \"https://host\", \"http://host:port\", "
        "\"null\", or \"*\" for all",
        origin);
  }
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
      {"max_admin_body_bytes", Signed(limits.max_admin_body_bytes), 1, int64_t{16} << 20},
      {"max_client_connections", limits.max_client_connections, 1, kMostInt},
      {"max_client_requests", limits.max_client_requests, 1, kMostInt},
      {"max_client_buffered_bytes", Signed(limits.max_client_buffered_bytes), 1, kMostBytes},
      {"min_transfer_rate", Signed(limits.min_transfer_rate), 1, kMostBytes},
      {"header_timeout (ms)", limits.header_timeout.count(), 1, kMostMs},
      {"body_timeout (ms)", limits.body_timeout.count(), 1, kMostMs},
      {"idle_timeout (ms)", limits.idle_timeout.count(), 1, kMostMs},
      {"closed_client_probe (ms)", limits.closed_client_probe.count(), 1, kMostMs},
  };
  for (const auto& [name, value, least, most] : ranges) {
    if (value >= least && value <= most) continue;
    return InvalidArgument("{} is {}; it must be {} to {}", name, value, least, most);
  }
  return absl::OkStatus();
}

// Connections that open files are left for: `limits`, or less where the process may not open as
// many. Raises its soft limit up to the hard one first.
Connections FitOpenFiles(const ServerLimits& limits) {
  constexpr rlim_t kOtherFiles = 256;
  const Connections all{limits.max_connections, limits.max_client_connections, kMostRefusing};
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return all;
  const rlim_t wanted = static_cast<rlim_t>(all.most) + kMostRefusing + kOtherFiles;
  if (files.rlim_cur >= wanted) return all;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= wanted) return all;
  const auto left = static_cast<int>(files.rlim_cur - std::min(kOtherFiles, files.rlim_cur / 2));
  Connections fit;
  fit.refusing = std::min(kMostRefusing, left / 4);
  fit.most = std::min(all.most, std::max(left - fit.refusing, 1));
  const int64_t share = int64_t{fit.most} * std::min(all.of_client, all.most) / all.most;
  fit.of_client = static_cast<int>(std::max<int64_t>(share, 1));
  spdlog::warn(
      "this process may open {} files: at most {} connections are accepted, {} of one client; "
      "`ulimit -n {}` leaves room for {}",
      static_cast<int64_t>(files.rlim_cur), fit.most, fit.of_client, static_cast<int64_t>(wanted),
      all.most);
  return fit;
}

// Accepts on one port and distributes the connections over the loops.
class Listener {
 public:
  Listener(std::shared_ptr<ServerContext> context, std::vector<IoLoop*> loops, Port port,
           const Connections& connections)
      : context_(std::move(context)),
        loops_(std::move(loops)),
        port_(port),
        connections_(connections),
        acceptor_(loops_[0]->io()) {
    loops_[0]->OnSweep([this] {
      if (acceptor_.is_open() && accepting_.expired()) Accept();
    });
  }

  // `option`: the name of the port in ServerOptions.
  Status Bind(const std::string& address, int port, const char* option) {
    boost::system::error_code ec;
    const boost::asio::ip::address ip = boost::asio::ip::make_address(
        address == "localhost" ? "127.0.0.1" : WithoutBrackets(address), ec);
    if (ec) {
      return InvalidArgument(
          "address: '{}' is not a numeric IP address, such as 127.0.0.1, 0.0.0.0 or [::1]",
          address);
    }
    const tcp::endpoint endpoint(ip, static_cast<uint16_t>(port));
    const auto failed = [&] {
      return Unavailable("{}: cannot listen on {}: {}", option, HostAndPort(address, port),
                         ec.message());
    };
    if (acceptor_.open(endpoint.protocol(), ec)) return failed();
    if (acceptor_.set_option(tcp::acceptor::reuse_address(true), ec)) return failed();
    if (acceptor_.bind(endpoint, ec)) {
      if (ec != boost::system::errc::address_not_available) return failed();
      return InvalidArgument(
          "address: {} is not an address of this machine; 0.0.0.0 listens on all of them", address);
    }
    if (acceptor_.listen(boost::asio::socket_base::max_listen_connections, ec)) return failed();
    bound_port_ = acceptor_.local_endpoint(ec).port();
    return absl::OkStatus();
  }

  int bound_port() const { return bound_port_; }

  // Runs on loop 0 from here on. If it fails (no file descriptors or memory), or its handler is
  // lost, the next sweep accepts again.
  void Accept() {
    const auto alive = std::make_shared<char>();
    accepting_ = alive;
    IoLoop* const loop = loops_[next_++ % loops_.size()];
    acceptor_.async_accept(
        loop->io(), [this, loop, alive](const boost::system::error_code& ec, tcp::socket socket) {
          if (ec) return;
          Serve(loop, std::move(socket));  // also one that was accepted just before Close()
          if (acceptor_.is_open()) Accept();
        });
  }

  // Serves the connections that the system has already accepted: they would be reset otherwise.
  void ServeWaiting() {
    boost::system::error_code ec;
    if (!acceptor_.is_open() || acceptor_.non_blocking(true, ec)) return;
    while (!ec) {
      IoLoop* const loop = loops_[next_++ % loops_.size()];
      tcp::socket socket = acceptor_.accept(loop->io(), ec);
      if (!ec) Serve(loop, std::move(socket));
    }
  }
  void Close() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  void Serve(IoLoop* loop, tcp::socket socket) {
    const bool inference = port_ == Port::kInference;
    const int most = inference ? connections_.most : kMetricsConnections;
    const int before = context_->connections(port_).count();
    boost::system::error_code ec;
    const tcp::endpoint peer = socket.remote_endpoint(ec);
    if (ec) return;  // already gone
    const std::shared_ptr<protocol::Client> client =
        context_->service.clients().Find(peer.address());
    const bool full = before >= most;
    const bool client_full = inference && client->connections >= connections_.of_client;
    if (full || client_full) ++context_->metrics.connections_refused;
    if (before >= most + connections_.refusing) return;
    // A client's refused connections stay open for a moment. They must not use up the others'
    // share.
    const int of_client = connections_.of_client + connections_.refusing / kClientsRefused;
    if (inference && client->connections >= of_client) return;
    socket.set_option(tcp::no_delay(true), ec);
    const auto session =
        std::make_shared<Session>(context_, loop, std::move(socket), port_, client);
    boost::asio::dispatch(loop->io(), [this, loop, session, client, full, client_full] {
      loop->Add(session);
      if (full) {
        session->Refuse(
            503, fmt::format("the server has its limit of {} connections open", connections_.most));
      } else if (client_full) {
        session->Refuse(429, fmt::format("the client {} has its limit of {} connections open",
                                         client->name, connections_.of_client));
      } else {
        session->Start();
      }
    });
  }

  const std::shared_ptr<ServerContext> context_;
  const std::vector<IoLoop*> loops_;
  const Port port_;
  const Connections connections_;
  tcp::acceptor acceptor_;
  std::weak_ptr<char> accepting_;  // an accept in progress
  size_t next_ = 0;
  int bound_port_ = -1;
};

class HttpServer final : public Server {
 public:
  HttpServer(Engine& engine, const ServerOptions& options)
      : service_(engine, options.limits, options.model_control, options.ready,
                 options.strict_readiness, OtherNamesOf(options)),
        context_(std::make_shared<ServerContext>(
            service_, options.limits, options.cors_origins,
            http::SitePolicy(IsLoopback(options.address), options.allowed_hosts,
                             options.cors_origins),
            options.codec_threads)) {
    context_->http_metrics = options.http_metrics;
    std::vector<IoLoop*> loops;
    for (int i = 0; i < options.io_threads; ++i) {
      loops_.push_back(std::make_unique<IoLoop>(options.limits));
      loops.push_back(loops_.back().get());
    }
    const Connections connections = FitOpenFiles(options.limits);
    inference_ = std::make_unique<Listener>(context_, loops, Port::kInference, connections);
    metrics_ = std::make_unique<Listener>(context_, std::vector<IoLoop*>{loops[0]}, Port::kMetrics,
                                          connections);
  }
  ~HttpServer() override { Stop(); }

  Status Bind(const ServerOptions& options) {
    CHAIRLIFT_RETURN_IF_ERROR(inference_->Bind(options.address, options.http_port, "http_port"));
    if (options.metrics_port < 0) return absl::OkStatus();
    return metrics_->Bind(options.address, options.metrics_port, "metrics_port");
  }

  void Run() {
    context_->metrics_port = metrics_port();
    inference_->Accept();
    if (metrics_->bound_port() >= 0) metrics_->Accept();
    for (const auto& loop : loops_) loop->Start();
    running_ = true;
  }

  void SetReady() override { service_.SetReady(); }
  int http_port() const override { return inference_->bound_port(); }
  int metrics_port() const override { return metrics_->bound_port(); }

  void BeginDrain() override { service_.Drain(); }

  Status Drain(std::chrono::milliseconds timeout) override {
    constexpr std::chrono::milliseconds kForRefusals(500);
    bool drained = true;
    if (running_) {
      service_.Drain();
      context_->closing = true;
      OnEachLoop([this](IoLoop* loop) {
        if (loop == loops_[0].get()) {
          inference_->ServeWaiting();
          inference_->Close();
        }
        for (const auto& session : loop->sessions()) session->Drain();
      });
      http::Tally& connections = context_->connections(Port::kInference);
      drained = connections.AwaitZero(timeout);
      if (!drained) {
        bool refused = false;
        OnEachLoop([&](IoLoop* loop) {
          for (const auto& session : loop->sessions()) refused |= session->RefuseUnread();
        });
        if (refused) connections.AwaitZero(kForRefusals);
      }
    }
    Stop();
    if (drained) return absl::OkStatus();
    return DeadlineExceeded("connections were still busy after {:g} s and were cut off",
                            static_cast<double>(timeout.count()) * 1e-3);
  }

  void Stop() override {
    if (!running_.exchange(false)) return;
    service_.Drain();
    const auto close = [this](IoLoop* loop) {
      if (loop == loops_[0].get()) {
        inference_->Close();
        metrics_->Close();
      }
      for (const auto& session : loop->sessions()) session->Close();
    };
    OnEachLoop(close);
    OnEachLoop(close);  // those that loop 0 accepted while another loop was being closed
    context_->calls.AwaitZero();
    context_->codecs.Stop();
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

  protocol::Service service_;  // the others use it
  std::shared_ptr<ServerContext> context_;
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::unique_ptr<Listener> inference_;
  std::unique_ptr<Listener> metrics_;
  std::atomic<bool> running_{false};
};

}  // namespace

bool IsLoopback(const std::string& address) {
  if (address == "localhost") return true;
  boost::system::error_code ec;
  const auto ip = boost::asio::ip::make_address(std::string(WithoutBrackets(address)), ec);
  const bool mapped = !ec && ip.is_v6() && ip.to_v6().is_v4_mapped();
  if (mapped)
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, ip.to_v6()).is_loopback();
  return !ec && ip.is_loopback();
}

std::string HostAndPort(const std::string& address, int port) {
  const std::string_view bare = WithoutBrackets(address);
  const bool v6 = bare.find(':') != std::string_view::npos;
  return fmt::format(FMT_STRING("{}{}{}:{}"), v6 ? "[" : "", bare, v6 ? "]" : "", port);
}

StatusOr<std::unique_ptr<Server>> Server::Start(Engine& engine, const ServerOptions& options) {
  CHAIRLIFT_RETURN_IF_ERROR(Validate(options));
  auto server = std::make_unique<HttpServer>(engine, options);
  CHAIRLIFT_RETURN_IF_ERROR(server->Bind(options));
  server->Run();
  return server;
}

}  // namespace chairlift
