#include "engine/programs/generating/generation_counters.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace chairlift {

void DurationHistogram::Observe(Duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  const auto at = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  counts_[static_cast<size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(std::chrono::nanoseconds(time).count(), std::memory_order_relaxed);
}

Histogram DurationHistogram::Read() const {
  Histogram histogram;
  histogram.bounds.assign(kBounds.begin(), kBounds.end());
  for (const std::atomic<uint64_t>& count : counts_) {
    histogram.counts.push_back(count.load(std::memory_order_relaxed));
  }
  histogram.sum = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
  return histogram;
}

GenerationStatistics GenerationCounters::Read(const BlockPool& pool) const {
  GenerationStatistics statistics;
  statistics.waiting = waiting_.load(std::memory_order_relaxed);
  statistics.running = live_.load(std::memory_order_relaxed);
  statistics.prompt_tokens = prompt_tokens_.load(std::memory_order_relaxed);
  statistics.generation_tokens = generated_tokens_.load(std::memory_order_relaxed);
  statistics.preemptions = set_back_.load(std::memory_order_relaxed);
  statistics.blocks = pool.blocks();
  const BlockPool::Use use = pool.use();
  statistics.blocks_used = use.blocks;
  statistics.block_tokens = pool.block_tokens();
  statistics.tokens_used = use.tokens;
  statistics.first_token_seconds = first_token_.Read();
  statistics.between_tokens_seconds = between_tokens_.Read();
  return statistics;
}

void GenerationTimes::Arrive(GenerationCounters& counters, TimePoint now) {
  counters_ = &counters;
  last_ = now;
  counters.waiting_.fetch_add(1, std::memory_order_relaxed);
}

void GenerationTimes::Start() {
  if (counters_ == nullptr || std::exchange(started_, true)) return;
  counters_->waiting_.fetch_sub(1, std::memory_order_relaxed);
  counters_->live_.fetch_add(1, std::memory_order_relaxed);
}

void GenerationTimes::Token(int64_t prompt_tokens, TimePoint now) {
  if (counters_ == nullptr) return;
  const bool first = !std::exchange(answers_, true);
  (first ? counters_->first_token_ : counters_->between_tokens_).Observe(now - last_);
  counters_->generated_tokens_.fetch_add(1, std::memory_order_relaxed);
  if (first) {
    counters_->prompt_tokens_.fetch_add(static_cast<uint64_t>(prompt_tokens),
                                        std::memory_order_relaxed);
  }
  last_ = now;
}

void GenerationTimes::Leave() {
  GenerationCounters* const counters = std::exchange(counters_, nullptr);
  if (counters == nullptr) return;
  (started_ ? counters->live_ : counters->waiting_).fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace chairlift
