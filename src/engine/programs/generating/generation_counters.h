// What a model that generates has done since it was loaded: its requests, their tokens, and when
// these came.
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
  // Seconds: 100 µs to 100 s, three steps a decade.
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
  // A request was set back.
  void SetBack() { set_back_.fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class GenerationTimes;

  std::atomic<int> waiting_{0}, live_{0};
  std::atomic<uint64_t> prompt_tokens_{0}, generated_tokens_{0}, set_back_{0};
  DurationHistogram first_token_, between_tokens_;
};

// Of one request; used by one thread at a time. It leaves with its end at the latest.
class GenerationTimes {
 public:
  GenerationTimes() = default;
  ~GenerationTimes() { Leave(); }
  GenerationTimes(const GenerationTimes&) = delete;
  GenerationTimes& operator=(const GenerationTimes&) = delete;

  // `counters` must outlive it.
  void Arrive(GenerationCounters& counters, TimePoint now);
  // A part of its prompt or source is computed; from the second call on, nothing.
  void Start();
  // A token of the answer has come, behind so many of the prompt or source.
  void Token(int64_t prompt_tokens, TimePoint now);
  void Leave();

 private:
  GenerationCounters* counters_ = nullptr;
  TimePoint last_{};  // it arrived, or its last token came
  bool started_ = false, answers_ = false;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COUNTERS_H_
