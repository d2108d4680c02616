// Sends streams of chunks whose state stays on the server. Each stream sends its next chunk when
// the last one is answered. Reports chunks per second, and the time of each.
//
//   stream_load MODEL_FOLDER POLICY STREAMS SECONDS          POLICY: as in model.yaml; "": default
//   stream_load http://HOST:PORT MODEL STREAMS SECONDS       one connection per stream
//
// For models like Silero's voice activity detection: float32 input [1, samples] in chunks of 576,
// of which 64 repeat the end of the previous chunk, int64 `sr`, and a state set in model.yaml.
// Prints a line of JSON. In process, the answers to the first chunks of all streams at once are
// then compared with those of the same streams one after the other: `max_difference`.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"
#include "cli/load/target.h"
#include "engine/repository/model_folder.h"

namespace chairlift {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kChunks = 16;  // that each stream sends in turn
constexpr double kWarmUpSeconds = 1;

std::vector<NamedTensor> Chunk(std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 0.1f);
  Tensor samples = Tensor::Allocate(DType::kFloat, {1, 576});
  for (int64_t i = 0; i < samples.size(); ++i) samples.data<float>()[i] = normal(random);
  return {{"input", std::move(samples)}, {"sr", Tensor::Scalar<int64_t>(16000)}};
}

class Load {
 public:
  Load(LoadTarget& target, int streams) : target_(target) {
    std::mt19937 random(1);
    for (int s = 0; s < streams; ++s) {
      std::vector<size_t>& stream = streams_.emplace_back();
      for (int c = 0; c < kChunks; ++c) {
        stream.push_back(
            target.Prepare(Chunk(random), {.id = fmt::format("s{}", s + 1), .start = c == 0}));
      }
    }
  }

  std::string Run(double seconds) {
    from_ = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(
                                     std::chrono::duration<double>(kWarmUpSeconds));
    until_ = from_ + std::chrono::duration_cast<SteadyClock::duration>(
                         std::chrono::duration<double>(seconds));
    going_ = static_cast<int>(streams_.size());
    for (size_t s = 0; s < streams_.size(); ++s) Send(s, 0);
    std::unique_lock<std::mutex> lock(mutex_);
    told_.wait(lock, [this] { return going_ == 0; });
    std::sort(latencies_.begin(), latencies_.end());
    const auto quantile = [&](double q) {
      if (latencies_.empty()) return 0.0;
      return latencies_[static_cast<size_t>(q * static_cast<double>(latencies_.size() - 1))];
    };
    return fmt::format(
        R"("streams": {}, "failed": {}, "chunks_per_s": {:.0f}, "p50_ms": {:.3f}, "p99_ms": {:.3f})",
        streams_.size(), failed_, static_cast<double>(latencies_.size()) / seconds, quantile(0.5),
        quantile(0.99));
  }

 private:
  void Send(size_t stream, size_t chunk) {
    const auto sent = SteadyClock::now();
    target_.Send(streams_[stream][chunk % kChunks], [=, this](const Status& status) {
      const auto now = SteadyClock::now();
      bool more = status.ok() && now < until_;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!status.ok()) ++failed_;
        if (more && now >= from_) {
          latencies_.push_back(std::chrono::duration<double, std::milli>(now - sent).count());
        }
        if (!more && --going_ == 0) told_.notify_one();
      }
      if (more) Send(stream, chunk + 1);
    });
  }

  LoadTarget& target_;
  std::vector<std::vector<size_t>> streams_;  // handles for Send(), by chunk
  SteadyClock::time_point from_, until_;      // of the measurement
  std::mutex mutex_;
  std::condition_variable told_;
  std::vector<double> latencies_;
  int going_ = 0;
  int failed_ = 0;
};

StatusOr<std::unique_ptr<Engine>> LoadEngine(const std::filesystem::path& folder,
                                             const std::string& policy) {
  CHAIRLIFT_ASSIGN_OR_RETURN(auto engine, Engine::Create({}));
  CHAIRLIFT_ASSIGN_OR_RETURN(FolderConfig read, ReadModelFolder(folder));
  const std::vector<std::string> versions = VersionsIn(folder, read.file);
  if (versions.empty()) return NotFound("{} has no version", folder.string());
  read.config.policy = policy;
  CHAIRLIFT_RETURN_IF_ERROR(
      engine->LoadModel("model", folder / versions.back() / read.file, read.config));
  return engine;
}

// Each stream's chunk `c`, all at once or one after the other.
StatusOr<std::vector<float>> Answers(Engine& engine, int streams, int c, bool at_once) {
  std::vector<std::future<StatusOr<InferResponse>>> told;
  std::vector<float> answers;
  for (int s = 0; s < streams; ++s) {
    std::mt19937 random(static_cast<unsigned>(s * kChunks + c));
    auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
    told.push_back(promise->get_future());
    engine.InferAsync(
        {.model = "model",
         .inputs = Chunk(random),
         .sequence = fmt::format("check{}", s),
         .sequence_start = c == 0},
        [promise](StatusOr<InferResponse> answer) { promise->set_value(std::move(answer)); });
    if (!at_once) told.back().wait();
  }
  for (auto& future : told) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const InferResponse answer, future.get());
    const Tensor& y = answer.outputs.at(0).tensor;
    answers.insert(answers.end(), y.data<float>(), y.data<float>() + y.size());
  }
  return answers;
}

StatusOr<double> MaxDifference(Engine& engine, Engine& alone, int streams) {
  double largest = 0;
  for (int c = 0; c < kChunks; ++c) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto got, Answers(engine, streams, c, true));
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto want, Answers(alone, streams, c, false));
    if (got.size() != want.size()) return Internal("the answers differ in number");
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(got[i]) - want[i]));
    }
  }
  return largest;
}

Status Run(int argc, char** argv) {
  if (argc != 5) {
    return InvalidArgument(
        "usage: {0} MODEL_FOLDER POLICY STREAMS SECONDS\n"
        "       {0} http://HOST:PORT MODEL STREAMS SECONDS",
        argv[0]);
  }
  const int streams = std::atoi(argv[3]);
  const double seconds = std::atof(argv[4]);
  if (streams < 1 || seconds <= 0) return InvalidArgument("STREAMS and SECONDS must be above 0");
  if (std::string_view(argv[1]).starts_with("http://")) {
    CHAIRLIFT_ASSIGN_OR_RETURN(auto target, MakeHttpTarget(argv[1], argv[2], streams));
    fmt::print("{{{}}}\n", Load(*target, streams).Run(seconds));
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(auto engine, LoadEngine(argv[1], argv[2]));
  CHAIRLIFT_ASSIGN_OR_RETURN(auto alone, LoadEngine(argv[1], "none"));
  CHAIRLIFT_ASSIGN_OR_RETURN(auto target, MakeEngineTarget(*engine, "model"));
  const std::string figures = Load(*target, streams).Run(seconds);
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelStatistics statistics, target->Statistics());
  CHAIRLIFT_ASSIGN_OR_RETURN(const double difference, MaxDifference(*engine, *alone, streams));
  fmt::print(R"({{{}, "mean_rows": {:.1f}, "max_difference": {:.2g}}})"
             "\n",
             figures,
             static_cast<double>(statistics.inference_count) /
                 static_cast<double>(statistics.execution_count),
             difference);
  return absl::OkStatus();
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  const chairlift::Status status = chairlift::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", chairlift::Message(status).c_str());
  return 1;
}
