// A load generator's HTTP client: blocking connections, one thread each, a shared queue.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/status.h"
#include "cli/load/target.h"
#include "server/http/oip_codec.h"

namespace chairlift {
namespace {

constexpr int kTimeoutSeconds = 60;

struct Address {
  std::string host;
  std::string port;
};

StatusOr<Address> ParseUrl(std::string url) {
  constexpr std::string_view kScheme = "http://";
  if (url.rfind(kScheme, 0) == 0) url = url.substr(kScheme.size());
  while (!url.empty() && url.back() == '/') url.pop_back();
  const size_t colon = url.rfind(':');
  if (colon == std::string::npos || colon == 0 || url.find('/') != std::string::npos) {
    return InvalidArgument("'{}' is not http://HOST:PORT", url);
  }
  return Address{url.substr(0, colon), url.substr(colon + 1)};
}

// One keep-alive connection. Not thread-safe.
class Connection {
 public:
  explicit Connection(Address address) : address_(std::move(address)) {}
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a whole request and returns the body of a 200 answer.
  StatusOr<std::string> Exchange(const std::string& request) {
    if (socket_ < 0) CHAIRLIFT_RETURN_IF_ERROR(Open());
    auto body = TryExchange(request);
    if (!body.ok() && body.status().code() == absl::StatusCode::kUnavailable) Close();
    return body;
  }

 private:
  Status Open() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(address_.host.c_str(), address_.port.c_str(), &hints, &found);
        error != 0) {
      return InvalidArgument("{}:{}: {}", address_.host, address_.port, gai_strerror(error));
    }
    for (addrinfo* a = found; a != nullptr && socket_ < 0; a = a->ai_next) {
      socket_ = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
      if (socket_ < 0) continue;
      const timeval timeout{kTimeoutSeconds, 0};
      setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
      setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
      const int on = 1;
      setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (connect(socket_, a->ai_addr, a->ai_addrlen) != 0) Close();
    }
    freeaddrinfo(found);
    if (socket_ < 0) {
      return Unavailable("nothing answers at {}:{}: {}", address_.host, address_.port,
                         std::strerror(errno));
    }
    return absl::OkStatus();
  }

  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  StatusOr<std::string> TryExchange(const std::string& request) {
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t n = send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return Unavailable("the connection broke while sending");
      sent += static_cast<size_t>(n);
    }
    std::string buffer;
    size_t head = std::string::npos;
    while ((head = buffer.find("\r\n\r\n")) == std::string::npos) {
      CHAIRLIFT_RETURN_IF_ERROR(Receive(&buffer));
      if (buffer.size() > (1 << 20)) return Unavailable("an answer's header is over 1 MiB");
    }
    const size_t length = ContentLength(std::string_view(buffer).substr(0, head));
    while (buffer.size() < head + 4 + length) CHAIRLIFT_RETURN_IF_ERROR(Receive(&buffer));
    std::string body = buffer.substr(head + 4, length);
    const std::string code = buffer.substr(buffer.find(' ') + 1, 3);
    if (code == "200") return body;
    return Internal("HTTP {}: {}", code, body.substr(0, 200));
  }

  Status Receive(std::string* buffer) {
    char block[65536];
    const ssize_t n = recv(socket_, block, sizeof block, 0);
    if (n <= 0) return Unavailable("the connection broke while receiving");
    buffer->append(block, static_cast<size_t>(n));
    return absl::OkStatus();
  }

  static size_t ContentLength(std::string_view head) {
    std::string lower(head);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const size_t at = lower.find("\r\ncontent-length:");
    if (at == std::string::npos) return 0;
    const size_t digits = lower.find_first_of("0123456789", at);
    size_t length = 0;
    if (digits != std::string::npos) {
      std::from_chars(lower.data() + digits, lower.data() + lower.size(), length);
    }
    return length;
  }

  Address address_;
  int socket_ = -1;
};

std::string InferRequestBytes(const std::string& model, const std::vector<NamedTensor>& inputs,
                              const LoadSequence& sequence) {
  nlohmann::json body = {{"parameters", {{"binary_data_output", true}}},
                         {"inputs", nlohmann::json::array()}};
  if (!sequence.id.empty()) {
    body["parameters"]["sequence_id"] = sequence.id;
    body["parameters"]["sequence_start"] = sequence.start;
  }
  std::string binary;
  for (const NamedTensor& input : inputs) {
    body["inputs"].push_back(
        {{"name", input.name},
         {"shape", std::vector<int64_t>(input.tensor.shape().begin(), input.tensor.shape().end())},
         {"datatype", std::string(http::WireName(input.tensor.dtype()))},
         {"parameters", {{"binary_data_size", input.tensor.byte_size()}}}});
    binary.append(static_cast<const char*>(input.tensor.raw()), input.tensor.byte_size());
  }
  const std::string json = body.dump();
  return fmt::format(
             "POST /v2/models/{}/infer HTTP/1.1\r\nHost: chairlift\r\nContent-Length: {}\r\n"
             "Inference-Header-Content-Length: {}\r\n\r\n",
             model, json.size() + binary.size(), json.size()) +
         json + binary;
}

StatusOr<std::vector<TensorSpec>> ReadSignature(Connection& connection, const std::string& model) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string body,
                             connection.Exchange(fmt::format(
                                 "GET /v2/models/{} HTTP/1.1\r\nHost: chairlift\r\n\r\n", model)));
  const auto json = nlohmann::json::parse(body, nullptr, false);
  const auto wrong = [&] {
    return Unavailable("the server's metadata of '{}' makes no sense", model);
  };
  if (!json.is_object() || !json.contains("inputs") || !json["inputs"].is_array()) return wrong();
  std::vector<TensorSpec> specs;
  for (const auto& input : json["inputs"]) {
    if (!input.is_object() || !input.contains("name") || !input["name"].is_string() ||
        !input.contains("datatype") || !input["datatype"].is_string() || !input.contains("shape") ||
        !input["shape"].is_array()) {
      return wrong();
    }
    TensorSpec spec;
    spec.name = input["name"].get<std::string>();
    spec.dtype = http::FromWireName(input["datatype"].get<std::string>());
    for (const auto& dim : input["shape"]) {
      if (!dim.is_number_integer()) return wrong();
      spec.shape.push_back(dim.get<int64_t>());
    }
    if (spec.dtype == DType::kUndefined) return wrong();
    specs.push_back(std::move(spec));
  }
  return specs;
}

StatusOr<ModelStatistics> ReadStatistics(Connection& connection, const std::string& model) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const std::string body,
      connection.Exchange(
          fmt::format("GET /v2/models/{}/stats HTTP/1.1\r\nHost: chairlift\r\n\r\n", model)));
  const auto json = nlohmann::json::parse(body, nullptr, false);
  ModelStatistics statistics;
  statistics.name = model;
  try {
    for (const auto& batch : json.at("model_stats").at(0).at("batch_stats")) {
      const auto& infer = batch.at("compute_infer");
      statistics.batches[batch.at("batch_size").get<int>()] = {
          .count = infer.at("count").get<uint64_t>(), .ns = infer.at("ns").get<uint64_t>()};
    }
  } catch (const nlohmann::json::exception& wrong) {
    return Unavailable("the server's statistics of '{}' make no sense: {}", model, wrong.what());
  }
  return statistics;
}

class HttpTarget final : public LoadTarget {
 public:
  HttpTarget(Address address, std::string model, std::vector<TensorSpec> inputs, int connections)
      : address_(std::move(address)), model_(std::move(model)), inputs_(std::move(inputs)) {
    for (int i = 0; i < connections; ++i) threads_.emplace_back([this] { Work(); });
  }

  ~HttpTarget() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string name() const override {
    return fmt::format("{} at http://{}:{}", model_, address_.host, address_.port);
  }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  size_t Prepare(std::vector<NamedTensor> inputs, const LoadSequence& sequence) override {
    prepared_.push_back(InferRequestBytes(model_, inputs, sequence));
    return prepared_.size() - 1;
  }
  void Send(size_t prepared, std::function<void(Status)> done) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back({prepared, std::move(done)});
    }
    wake_.notify_one();
  }
  StatusOr<ModelStatistics> Statistics() override {
    Connection connection(address_);
    return ReadStatistics(connection, model_);
  }

 private:
  struct Item {
    size_t prepared;
    std::function<void(Status)> done;
  };

  void Work() {
    Connection connection(address_);
    while (true) {
      Item item;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        item = std::move(queue_.front());
        queue_.pop_front();
      }
      item.done(connection.Exchange(prepared_[item.prepared]).status());
    }
  }

  Address address_;
  std::string model_;
  std::vector<TensorSpec> inputs_;
  std::vector<std::string> prepared_;  // written before the first Send only
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> queue_;  // bounded by the schedule's length
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<std::unique_ptr<LoadTarget>> MakeHttpTarget(const std::string& url,
                                                     const std::string& model, int connections) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Address address, ParseUrl(url));
  Connection connection(address);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<TensorSpec> inputs, ReadSignature(connection, model));
  return std::unique_ptr<LoadTarget>(
      new HttpTarget(std::move(address), model, std::move(inputs), connections));
}

}  // namespace chairlift
