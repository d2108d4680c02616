// Puts sequences of given lengths, or trees, on one model in an engine or on a server, as fast as
// possible or at a rate: Chairlift's half of the cellular and tree benchmarks.
//
//   sequence_load MODEL POLICY MAX_ROWS WORKERS SHAPES.txt VOCABULARY [DEVICE PRECISION]
//                                                  MAX_ROWS (for `packed`: tokens) 0: as timed
//   sequence_load http://HOST:PORT MODEL CONNECTIONS WORKERS SHAPES.txt VOCABULARY
//   > closed CLIENTS SECONDS     always CLIENTS concurrent requests; measured after as many answers
//   > alone SECONDS              in process: one after the other by Infer(), which waits
//   > open RATE SECONDS SEED     Poisson arrivals, whatever the answers do
//   < one line of JSON: requests and tokens per second, latencies in ms, and the use of the
//   workers'
//     time (a server does not report its padding)
//   > batch COUNT ROUNDS         the first COUNT shapes at once, and again when all are answered
//   < milliseconds of each round, on one line
//
// Latency counts from the scheduled arrival. A line of SHAPES.txt is the length of a sequence, for
// inputs [1, length] (ones for "attention_mask", zeros for "token_type_ids", otherwise random token
// ids). Or it is a binary tree, `.` a leaf and `(ab)` an inner node, for "tokens" [nodes] and
// "children" [nodes, 2]; its tokens are its nodes. Requests take the lines in turn.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"
#include "cli/load/target.h"

namespace chairlift {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

Tensor RandomTokens(const Shape& shape, int64_t vocabulary, std::mt19937& random) {
  Tensor tokens = Tensor::Allocate(DType::kInt64, shape);
  for (int64_t i = 0; i < tokens.size(); ++i) {
    tokens.data<int64_t>()[i] = static_cast<int64_t>(random() % vocabulary);
  }
  return tokens;
}

// The children of a tree's nodes [nodes, 2], each node after its children.
StatusOr<Tensor> Children(const std::string& tree) {
  std::vector<int64_t> children, open;
  for (const char c : tree) {
    if (c == '(') continue;
    if (c == '.') {
      children.insert(children.end(), {-1, -1});
    } else if (c == ')' && open.size() >= 2) {
      children.insert(children.end(), {open[open.size() - 2], open.back()});
      open.resize(open.size() - 2);
    } else {
      return InvalidArgument("'{}' is no binary tree", tree);
    }
    open.push_back(static_cast<int64_t>(children.size() / 2) - 1);
  }
  if (open.size() != 1) return InvalidArgument("'{}' is no binary tree", tree);
  const auto nodes = static_cast<int64_t>(children.size() / 2);
  return Tensor::Of<int64_t>({nodes, 2}, std::span<const int64_t>(children));
}

class Load {
 public:
  Load(LoadTarget& target, int workers) : target_(target), workers_(workers) {}

  Status Prepare(const std::vector<std::string>& shapes, int64_t vocabulary) {
    std::mt19937 random(1);
    for (const std::string& shape : shapes) {
      std::vector<NamedTensor> inputs;
      if (std::isdigit(static_cast<unsigned char>(shape[0])) != 0) {
        const int64_t length = std::atoll(shape.c_str());
        for (const TensorSpec& input : target_.inputs()) {
          Tensor tokens = RandomTokens({1, length}, vocabulary, random);
          if (input.name == "attention_mask") std::fill_n(tokens.data<int64_t>(), length, 1);
          if (input.name == "token_type_ids") std::fill_n(tokens.data<int64_t>(), length, 0);
          inputs.push_back({input.name, std::move(tokens)});
        }
      } else {
        CHAIRLIFT_ASSIGN_OR_RETURN(Tensor children, Children(shape));
        inputs = {{"tokens", RandomTokens({children.shape()[0]}, vocabulary, random)},
                  {"children", std::move(children)}};
      }
      const int64_t tokens = inputs[0].tensor.size();
      requests_.push_back({target_.Prepare(inputs), tokens});
      inputs_.push_back(std::move(inputs));
    }
    return absl::OkStatus();
  }

  std::string Closed(int clients, double seconds) {
    Begin();
    to_warm_up_ = clients;
    window_ = ToDuration(seconds);
    for (int i = 0; i < clients; ++i) Send(SteadyClock::now(), true);
    Wait();
    // From one answer to another: if many arrive together, a window that ends in between would
    // count too few.
    return Result(std::max(1e-9, Seconds(last_at_ - before_at_)));
  }

  // One request after the other, waiting for each.
  std::string Alone(Engine& engine, double seconds) {
    Begin();
    before_ = Statistics(&before_at_);
    const auto end = before_at_ + ToDuration(seconds);
    for (size_t next = 0; SteadyClock::now() < end; ++next) {
      InferRequest request;
      request.model = "model";
      request.inputs = inputs_[next % inputs_.size()];
      const auto begin = SteadyClock::now();
      const auto answer = engine.Infer(std::move(request));
      Note(answer.status(), begin, SteadyClock::now(), requests_[next % inputs_.size()].tokens);
    }
    after_ = Statistics(&after_at_);
    return Result(Seconds(after_at_ - before_at_));
  }

  std::string Batch(int count, int rounds) {
    std::string times;
    for (; rounds > 0; --rounds) {
      Begin();
      next_ = 0;
      const auto begin = SteadyClock::now();
      for (int i = 0; i < count; ++i) Send(begin, false);
      Wait();
      times += fmt::format("{:.3f} ", Milliseconds(SteadyClock::now() - begin).count());
    }
    return times;
  }

  std::string Open(double rate, double seconds, unsigned seed) {
    std::mt19937 random(seed);
    std::exponential_distribution<double> gap(rate);
    Begin();
    before_ = Statistics(&before_at_);
    const auto start = SteadyClock::now();
    for (double at = gap(random); at < seconds; at += gap(random)) {
      const auto due = start + ToDuration(at);
      std::this_thread::sleep_until(due);
      Send(due, false);
    }
    Wait();
    after_ = Statistics(&after_at_);
    return Result(Seconds(after_at_ - start));
  }

 private:
  static SteadyClock::duration ToDuration(double seconds) {
    return std::chrono::duration_cast<SteadyClock::duration>(
        std::chrono::duration<double>(seconds));
  }

  void Begin() {
    latencies_.clear();
    tokens_ = 0;
    failed_ = 0;
    to_warm_up_ = 0;
    end_.reset();
    over_ = false;
    last_at_ = {};
  }

  void Send(SteadyClock::time_point due, bool again) {
    const Prepared& request = requests_[next_++ % requests_.size()];
    ++under_way_;
    target_.Send(request.handle, [this, due, again, tokens = request.tokens](const Status& status) {
      const auto now = SteadyClock::now();
      const bool more = Note(status, due, now, tokens) && again;
      if (more) Send(now, true);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (--under_way_ == 0) told_.notify_one();
    });
  }

  // Whether a client continues.
  bool Note(const Status& status, SteadyClock::time_point due, SteadyClock::time_point now,
            int64_t tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status.ok()) {
      if (failed_++ == 0) std::fprintf(stderr, "a request failed: %s\n", Message(status).c_str());
      return false;
    }
    if (to_warm_up_ > 0) {
      if (--to_warm_up_ > 0) return true;
      before_ = Statistics(&before_at_);
      end_ = now + window_;
      return true;
    }
    if (end_ && now >= *end_) {
      if (!over_) after_ = Statistics(&after_at_);
      over_ = true;
      return false;
    }
    latencies_.push_back(Milliseconds(now - due).count());
    tokens_ += tokens;
    last_at_ = now;
    return true;
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    told_.wait(lock, [this] { return under_way_ == 0; });
  }

  std::string Result(double seconds) {
    std::sort(latencies_.begin(), latencies_.end());
    const auto quantile = [&](double q) {
      if (latencies_.empty()) return 0.0;
      return latencies_[static_cast<size_t>(q * static_cast<double>(latencies_.size() - 1))];
    };
    const Shares shares = SharesOf();
    return fmt::format(
        R"({{"requests": {}, "failed": {}, "seconds": {:.4f}, "requests_per_s": {:.3f}, )"
        R"("tokens_per_s": {:.1f}, "mean_ms": {:.3f}, "p50_ms": {:.3f}, "p90_ms": {:.3f}, )"
        R"("p99_ms": {:.3f}, )"
        R"("busy": {:.4f}, "useful": {:.4f}, "mean_rows": {:.2f}}})",
        latencies_.size(), failed_, seconds, static_cast<double>(latencies_.size()) / seconds,
        static_cast<double>(tokens_) / seconds,
        std::accumulate(latencies_.begin(), latencies_.end(), 0.0) /
            static_cast<double>(std::max<size_t>(latencies_.size(), 1)),
        quantile(0.5), quantile(0.9), quantile(0.99), shares.busy, shares.useful, shares.mean_rows);
  }

  // During the measurement: the share of the workers' time in which cells ran, the share of
  // requested rows, and the mean rows of a task, weighted by time.
  struct Shares {
    double busy = 0, useful = 0, mean_rows = 0;
  };
  Shares SharesOf() const {
    double ns = 0, rows = 0, rows_ns = 0;
    for (const auto& [size, count] : after_.batches) {
      ModelStatistics::Count earlier;
      if (const auto at = before_.batches.find(size); at != before_.batches.end()) {
        earlier = at->second;
      }
      const auto spent = static_cast<double>(count.ns - earlier.ns);
      ns += spent;
      rows += size * static_cast<double>(count.count - earlier.count);
      rows_ns += size * spent;
    }
    const auto padded = static_cast<double>(after_.padded_rows - before_.padded_rows);
    return {.busy = ns * 1e-9 / Seconds(after_at_ - before_at_) / workers_,
            .useful = rows > 0 ? rows / (rows + padded) : 0,
            .mean_rows = ns > 0 ? rows_ns / ns : 0};
  }
  ModelStatistics Statistics(SteadyClock::time_point* at) {
    *at = SteadyClock::now();
    auto statistics = target_.Statistics();
    return statistics.ok() ? *std::move(statistics) : ModelStatistics{};
  }
  static double Seconds(SteadyClock::duration time) {
    return std::chrono::duration<double>(time).count();
  }

  struct Prepared {
    size_t handle;
    int64_t tokens;
  };
  LoadTarget& target_;
  const int workers_;
  ModelStatistics before_, after_;
  SteadyClock::time_point before_at_, after_at_, last_at_;
  std::vector<Prepared> requests_;
  std::vector<std::vector<NamedTensor>> inputs_;  // for these
  std::atomic<size_t> next_{0};
  std::atomic<int> under_way_{0};
  std::mutex mutex_;
  std::condition_variable told_;
  std::vector<double> latencies_;
  int64_t tokens_ = 0;
  int failed_ = 0;
  int to_warm_up_ = 0;  // answers until the measurement starts
  SteadyClock::duration window_{};
  std::optional<SteadyClock::time_point> end_;  // of the measurement
  bool over_ = false;
};

StatusOr<std::unique_ptr<Engine>> LoadEngine(int argc, char** argv) {
  EngineOptions options;
  options.workers = std::atoi(argv[4]);
  options.max_requests = 1 << 16;
  CHAIRLIFT_ASSIGN_OR_RETURN(auto engine, Engine::Create(options));
  ModelConfig config;
  config.policy = argv[2];
  (config.policy == "packed" ? config.max_batch_tokens : config.max_batch_size) =
      std::atoi(argv[3]);
  config.max_queue_size = 1 << 16;
  if (argc > 7) {
    config.device = argv[7];
    config.precision = argv[8];
  }
  CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", argv[1], config));
  return engine;
}

Status Serve(int argc, char** argv) {
  if (argc != 7 && argc != 9) {
    return InvalidArgument(
        "usage: {0} MODEL POLICY MAX_ROWS WORKERS SHAPES.txt VOCABULARY [DEVICE PRECISION]\n"
        "       {0} http://HOST:PORT MODEL CONNECTIONS WORKERS SHAPES.txt VOCABULARY",
        argv[0]);
  }
  std::unique_ptr<Engine> engine;
  std::unique_ptr<LoadTarget> target;
  if (std::string_view(argv[1]).starts_with("http://")) {
    CHAIRLIFT_ASSIGN_OR_RETURN(target, MakeHttpTarget(argv[1], argv[2], std::atoi(argv[3])));
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(engine, LoadEngine(argc, argv));
    CHAIRLIFT_ASSIGN_OR_RETURN(target, MakeEngineTarget(*engine, "model"));
  }
  std::vector<std::string> shapes;
  std::ifstream lines(argv[5]);
  for (std::string shape; lines >> shape;) shapes.push_back(shape);
  if (shapes.empty()) return InvalidArgument("{} holds no lengths and no trees", argv[5]);
  Load load(*target, std::atoi(argv[4]));
  CHAIRLIFT_RETURN_IF_ERROR(load.Prepare(shapes, std::atoi(argv[6])));
  std::cout << "ready" << std::endl;

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    double first = 0, second = 0;
    unsigned seed = 1;
    words >> verb >> first >> second >> seed;
    std::string result;
    if (verb == "closed") {
      result = load.Closed(static_cast<int>(first), second);
    } else if (verb == "alone") {
      if (engine == nullptr) return InvalidArgument("'alone' is for a model in process");
      result = load.Alone(*engine, first);
    } else if (verb == "batch") {
      result = load.Batch(static_cast<int>(first), static_cast<int>(second));
    } else {
      result = load.Open(first, second, seed);
    }
    std::cout << result << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status = chairlift::Serve(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", chairlift::Message(status).c_str());
  return 1;
}
