// A load generator's HTTP client: blocking connections, one thread each, a shared queue.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/status.h"
#include "cli/flags.h"
#include "cli/load/target.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimeoutSeconds = 60;  // for a connection, and for a whole exchange
constexpr int kLookEveryMs = 100;    // whether to stop

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
    return Usage(InvalidArgument("'{}' is not a server's URL; write it as http://HOST:PORT", url));
  }
  return Address{url.substr(0, colon), url.substr(colon + 1)};
}

// The error of an answer other than 200: the protocol's {"error": …}, or the start of its body.
Status Refusal(const std::string& code, const std::string& body) {
  constexpr size_t kMost = 400;
  const auto json = nlohmann::json::parse(body.substr(0, 1 << 16), nullptr, false);
  const bool has_error = json.is_object() && json.contains("error") && json["error"].is_string();
  const std::string text = has_error ? json["error"].get<std::string>() : body;
  const std::string message = fmt::format("HTTP {}: {}", code, text.substr(0, kMost));
  if (code == "400") return InvalidArgument("{}", message);
  if (code == "404") return NotFound("{}", message);
  if (code == "503") return ResourceExhausted("{}", message);
  return Internal("{}", message);
}

// One keep-alive connection. Not thread-safe. Once `stop` is set an exchange ends soon, unanswered.
class Connection {
 public:
  explicit Connection(Address address, const std::atomic<bool>* stop = nullptr)
      : address_(std::move(address)), stop_(stop) {}
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
      setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);  // of connect()
      const int on = 1;
      setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (connect(socket_, a->ai_addr, a->ai_addrlen) != 0) Close();
    }
    freeaddrinfo(found);
    if (socket_ < 0) {
      return Unavailable("cannot connect to {}:{}: {}", address_.host, address_.port,
                         std::strerror(errno));
    }
    return absl::OkStatus();
  }

  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  StatusOr<std::string> TryExchange(const std::string& request) {
    deadline_ = Clock::now() + std::chrono::seconds(kTimeoutSeconds);
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t n =
          send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) {
        CHAIRLIFT_RETURN_IF_ERROR(Await(POLLOUT));
        continue;
      }
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
    return Refusal(code, body);
  }

  Status Await(short events) {
    while (Clock::now() < deadline_) {
      if (stop_ != nullptr && *stop_) return Unavailable("the load ended before an answer came");
      pollfd ready{socket_, events, 0};
      if (poll(&ready, 1, kLookEveryMs) > 0) return absl::OkStatus();
    }
    return Unavailable("no complete answer within {} s", kTimeoutSeconds);
  }

  Status Receive(std::string* buffer) {
    CHAIRLIFT_RETURN_IF_ERROR(Await(POLLIN));
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
  const std::atomic<bool>* stop_;
  Clock::time_point deadline_;
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
         {"datatype", std::string(DatatypeName(input.tensor.dtype()))},
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

// The JSON that GET /v2/models/{model}{what} answers.
StatusOr<nlohmann::json> Get(Connection& connection, const std::string& model, const char* what) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const std::string body,
      connection.Exchange(
          fmt::format("GET /v2/models/{}{} HTTP/1.1\r\nHost: chairlift\r\n\r\n", model, what)));
  return nlohmann::json::parse(body, nullptr, false);
}

// Requests outside of a sequence bring its state as an input.
void AppendStates(const nlohmann::json& config, std::vector<TensorSpec>* inputs) {
  if (!config.contains("sequence_batching")) return;
  constexpr std::string_view kPrefix = "TYPE_";
  for (const auto& state : config.at("sequence_batching").at("state")) {
    TensorSpec spec;
    spec.name = state.at("input_name").get<std::string>();
    spec.dtype = DatatypeFromName(state.at("data_type").get<std::string>().substr(kPrefix.size()));
    if (config.at("max_batch_size").get<int64_t>() > 0) spec.shape.push_back(-1);
    for (const auto& dim : state.at("dims")) spec.shape.push_back(dim.get<int64_t>());
    inputs->push_back(std::move(spec));
  }
}

StatusOr<std::vector<TensorSpec>> ReadSignature(Connection& connection, const std::string& model) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json metadata, Get(connection, model, ""));
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json config, Get(connection, model, "/config"));
  std::vector<TensorSpec> specs;
  try {
    for (const auto& input : metadata.at("inputs")) {
      specs.push_back({input.at("name").get<std::string>(),
                       DatatypeFromName(input.at("datatype").get<std::string>()),
                       input.at("shape").get<std::vector<int64_t>>()});
    }
    AppendStates(config, &specs);
  } catch (const std::exception& wrong) {
    return Unavailable("cannot read the server's metadata of '{}': {}", model, wrong.what());
  }
  for (const TensorSpec& spec : specs) {
    if (spec.dtype != DType::kUndefined) continue;
    return Unimplemented(
        "input '{}' of '{}' has a datatype without numbers, which bench cannot generate", spec.name,
        model);
  }
  return specs;
}

StatusOr<ModelStatistics> ReadStatistics(Connection& connection, const std::string& model) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json json, Get(connection, model, "/stats"));
  ModelStatistics statistics;
  statistics.name = model;
  try {
    for (const auto& batch : json.at("model_stats").at(0).at("batch_stats")) {
      const auto& infer = batch.at("compute_infer");
      statistics.batches[batch.at("batch_size").get<int>()] = {
          .count = infer.at("count").get<uint64_t>(), .ns = infer.at("ns").get<uint64_t>()};
    }
  } catch (const nlohmann::json::exception& wrong) {
    return Unavailable("cannot read the server's statistics of '{}': {}", model, wrong.what());
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
    for (Item& item : queue_) item.done(Unavailable("the load ended before the request was sent"));
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
    Connection connection(address_, &stopping_);
    while (true) {
      Item item;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
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
  std::atomic<bool> stopping_{false};
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
