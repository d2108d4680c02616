#include "cli/load/token_load.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// Prompt tokens are drawn from the start of the vocabulary, which every model has.
constexpr int64_t kDrawnTokens = 32;

Quantiles QuantilesOf(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  Quantiles quantiles;
  if (values.empty()) return quantiles;
  quantiles.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  quantiles.p50 = Percentile(values, 0.5);
  quantiles.p90 = Percentile(values, 0.9);
  quantiles.p99 = Percentile(values, 0.99);
  quantiles.max = values.back();
  return quantiles;
}

// Shared with the answers, which may outlive the load.
class TokenLoad : public std::enable_shared_from_this<TokenLoad> {
 public:
  TokenLoad(TokenTarget& target, uint64_t seed) : target_(target), random_(seed) {}

  SteadyClock::time_point start() const { return start_; }

  // `next`: called after a success, on the same thread; may be null.
  void Send(const TokenCounts& counts, nanoseconds scheduled, const std::function<void()>& next) {
    std::vector<int64_t> prompt(static_cast<size_t>(counts.prompt));
    size_t at = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int64_t& token : prompt) {
        token = static_cast<int64_t>(random_() % static_cast<uint64_t>(kDrawnTokens));
      }
      at = samples_.size();
      samples_.push_back(
          {.counts = counts, .scheduled = scheduled, .sent = SteadyClock::now() - start_});
      ++open_;
    }
    target_.Stream(
        prompt, counts.output,
        [self = shared_from_this(), at](int64_t tokens) {
          const nanoseconds now = SteadyClock::now() - self->start_;
          const std::lock_guard<std::mutex> lock(self->mutex_);
          std::vector<nanoseconds>& came = self->samples_[at].tokens;
          came.insert(came.end(), static_cast<size_t>(tokens), now);
        },
        [self = shared_from_this(), at, next](Status status) {
          const nanoseconds now = SteadyClock::now() - self->start_;
          bool succeeded = false;
          {
            const std::lock_guard<std::mutex> lock(self->mutex_);
            TokenSample& sample = self->samples_[at];
            sample.done = now;
            const auto came = static_cast<int64_t>(sample.tokens.size());
            if (status.ok() && came != sample.counts.output) {
              status = Internal("an answer has {} tokens, not {}", came, sample.counts.output);
            }
            succeeded = status.ok();
            sample.status = std::move(status);
          }
          // Before this one counts as ended, so that the load is not over between the two.
          if (succeeded && next != nullptr) next();
          const std::lock_guard<std::mutex> lock(self->mutex_);
          if (--self->open_ == 0) self->all_done_.notify_one();
        });
  }

  bool idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return open_ == 0;
  }

  std::vector<TokenSample> Wait(nanoseconds patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    all_done_.wait_for(lock, patience, [this] { return open_ == 0; });
    std::vector<TokenSample> samples(samples_.begin(), samples_.end());
    const nanoseconds now = SteadyClock::now() - start_;
    for (TokenSample& sample : samples) {
      if (sample.done.count() != 0) continue;
      sample.done = now;
      sample.status = DeadlineExceeded("not answered within {:g} s of the last request",
                                       std::chrono::duration<double>(patience).count());
    }
    return samples;
  }

 private:
  TokenTarget& target_;
  const SteadyClock::time_point start_ = SteadyClock::now();
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::mt19937_64 random_;
  std::deque<TokenSample> samples_;
  size_t open_ = 0;
};

}  // namespace

TokenReport SummarizeTokens(std::span<const TokenSample> samples, nanoseconds from,
                            nanoseconds to) {
  const double seconds = std::chrono::duration<double>(to - from).count();
  const auto counts = [&](nanoseconds at) { return at >= from && at < to; };
  std::vector<LoadSample> ended;
  std::vector<double> first, between;
  double prompt = 0, output = 0;
  for (const TokenSample& sample : samples) {
    // A request without an answer counts in the interval in which it was sent.
    const bool unanswered = !sample.status.ok() && sample.done >= to && sample.sent < to;
    if (counts(sample.done) || unanswered) {
      ended.push_back({.scheduled = sample.scheduled - from,
                       .sent = sample.sent - from,
                       .done = sample.done - from,
                       .status = sample.status});
    }
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      const nanoseconds came = sample.tokens[i];
      if (!counts(came)) continue;
      ++output;
      if (i > 0) {
        between.push_back(Ms(came - sample.tokens[i - 1]));
      } else {
        prompt += static_cast<double>(sample.counts.prompt);
        first.push_back(Ms(came - sample.scheduled));
      }
    }
  }
  return {.requests = Summarize(ended, seconds),
          .prompt_tokens_per_s = prompt / seconds,
          .output_tokens_per_s = output / seconds,
          .first_ms = QuantilesOf(first),
          .between_ms = QuantilesOf(between)};
}

std::vector<TokenSample> PutTokenLoad(TokenTarget& target, std::span<const Arrival> schedule,
                                      uint64_t seed, const LoadTestOptions& options) {
  const auto load = std::make_shared<TokenLoad>(target, seed);
  SendOnTime(schedule, load->start(), options.progress, [&](size_t i) {
    load->Send({schedule[i].length, schedule[i].output}, schedule[i].at, nullptr);
  });
  return load->Wait(options.patience);
}

std::vector<TokenSample> KeepTokenLoad(TokenTarget& target, const ClosedTokenLoad& closed) {
  const auto load = std::make_shared<TokenLoad>(target, closed.seed);
  const auto end = load->start() + std::chrono::duration_cast<SteadyClock::duration>(
                                       std::chrono::duration<double>(closed.seconds));
  // The clients' state; shared, so that it outlives late answers.
  struct Clients {
    std::mutex mutex;
    std::function<TokenCounts()> next;
    std::function<void()> send;
  };
  const auto clients = std::make_shared<Clients>();
  clients->next = closed.next;
  clients->send = [load = load.get(), all = std::weak_ptr<Clients>(clients), end] {
    const std::shared_ptr<Clients> clients = all.lock();
    const auto now = SteadyClock::now();
    if (clients == nullptr || now >= end) return;
    TokenCounts counts;
    {
      const std::lock_guard<std::mutex> lock(clients->mutex);
      counts = clients->next();
    }
    load->Send(counts, now - load->start(), clients->send);
  };
  for (int i = 0; i < closed.clients; ++i) clients->send();
  for (auto now = SteadyClock::now(); now < end && !load->idle(); now = SteadyClock::now()) {
    std::this_thread::sleep_for(std::min<SteadyClock::duration>(end - now, kProgressEvery));
    if (closed.options.progress != nullptr) {
      closed.options.progress(
          std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - load->start())
              .count());
    }
  }
  return load->Wait(closed.options.patience);
}

}  // namespace chairlift
