// Counters of a model that generates since it was loaded: requests, tokens, and their times.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COUNTERS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "chairlift/engine.h"
#include "runtime/block_pool.h"

namespace chairlift {

// Thread-safe.
class DurationHistogram {
 public:
  void Observe(Duration time);
  Histogram Read() const;

 private:
  // Seconds: 100 µs to 100 s, three steps per decade.
  static constexpr std::array<double, 19> kBounds = {1e-4,   2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2,
                                                     2.5e-2, 5e-2,   0.1,  0.25, 0.5,    1,    2.5,
                                                     5,      10,     25,   50,   100};

  std::array<std::atomic<uint64_t>, kBounds.size() + 1> counts_{};
  std::atomic<int64_t> sum_ns_{0};
};

// Thread-safe.
class GenerationCounters {
 public:
  GenerationStatistics Read(const BlockPool& pool) const;
  // A request was preempted.
  void SetBack() { set_back_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class GenerationTimes;

  std::atomic<int> waiting_{0}, live_{0};
  std::atomic<uint64_t> prompt_tokens_{0}, generated_tokens_{0}, set_back_{0};
  DurationHistogram first_token_, between_tokens_;
};

// For one request; used by one thread at a time. The request leaves the counters at the latest when
// this is destroyed.
class GenerationTimes {
 public:
  GenerationTimes() = default;
  ~GenerationTimes() { Leave(); }
  GenerationTimes(const GenerationTimes&) = delete;
  GenerationTimes& operator=(const GenerationTimes&) = delete;

  // `counters` must outlive it.
  void Arrive(GenerationCounters& counters, TimePoint now);
  // A part of its prompt or source is computed; no effect after the first call.
  void Start();
  // A token of the answer was produced, after this many tokens of the prompt or source.
  void Token(int64_t prompt_tokens, TimePoint now);
  void Leave();

 private:
  GenerationCounters* counters_ = nullptr;
  TimePoint last_{};  // when it arrived, or its last token was produced
  bool started_ = false, answers_ = false;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COUNTERS_H_
