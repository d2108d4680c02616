// When requests are sent and how long they are: drawn in advance, from a seed.
#ifndef CHAIRLIFT_CLI_LOAD_SCHEDULE_H_
#define CHAIRLIFT_CLI_LOAD_SCHEDULE_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <random>
#include <vector>

#include "base/status.h"

namespace chairlift {

struct Arrival {
  std::chrono::nanoseconds at{0};  // after the start
  int64_t length = 0;              // for the variable dimensions; 0: as in the shapes
  int64_t output = 0;              // tokens of the answer, for models that generate
};

// Lengths and how often each occurs.
class LengthHistogram {
 public:
  // A JSON object with "histogram": {"17": 41, ...}, or only that inner object.
  static StatusOr<LengthHistogram> Read(const std::filesystem::path& path);
  static StatusOr<LengthHistogram> Parse(const std::string& json);
  // "128", "32-512" (uniform), or a file.
  static StatusOr<LengthHistogram> From(const std::string& text);
  int64_t Sample(std::mt19937_64& random) const;
  double mean() const;

 private:
  std::vector<int64_t> lengths_;
  std::vector<uint64_t> cumulative_;
};

struct ScheduleOptions {
  double rate = 100;  // requests per second; gaps are scaled to it (0: not scaled)
  double seconds = 10;
  std::vector<double> gaps_ms;               // empty: Poisson arrivals
  const LengthHistogram* lengths = nullptr;  // null: all lengths are 0
  const LengthHistogram* outputs = nullptr;  // null: all lengths are 0
  uint64_t seed = 1;
  int64_t max_requests = 10'000'000;
};

StatusOr<std::vector<Arrival>> MakeSchedule(const ScheduleOptions& options);

// One number per line: milliseconds between successive requests. '#' starts a comment.
StatusOr<std::vector<double>> ReadGaps(const std::filesystem::path& path);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_SCHEDULE_H_
