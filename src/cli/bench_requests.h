// The requests of `chairlift bench`, prepared before the load begins.
#ifndef CHAIRLIFT_CLI_BENCH_REQUESTS_H_
#define CHAIRLIFT_CLI_BENCH_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/bench_flags.h"
#include "cli/load/schedule.h"
#include "cli/load/target.h"

namespace chairlift {

// One for each length that occurs. `target` and `flags` must outlive it.
class BenchRequests {
 public:
  BenchRequests(LoadTarget& target, const BenchFlags& flags)
      : target_(target), flags_(flags), shapes_(flags.input_shapes) {}

  // Reads or generates the inputs, and tries a request of `length`.
  Status Begin(int64_t length);
  Status Add(int64_t length);
  // The request to send for the arrival.
  size_t operator()(const Arrival& arrival);
  // "x float32 [1,16], made up"
  std::string Describe() const;

 private:
  // Prepares one request per row of the given inputs, before all others.
  Status PrepareRows();
  // "x float32 [1,length]"
  std::string DescribeVarying() const;

  LoadTarget& target_;
  const BenchFlags& flags_;
  InputShapes shapes_;
  std::vector<NamedTensor> given_;
  std::mt19937_64 random_{1};
  std::map<int64_t, size_t> by_length_;
  std::vector<size_t> rows_;  // by row of the given inputs, if requests take them in turn
  size_t next_row_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_BENCH_REQUESTS_H_
