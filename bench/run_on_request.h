// One side of a paired benchmark: runs something as often as a line on standard input says,
// alternating with its peer (bench/harness.py, Told).
//
//   > run 10        < nanoseconds of each of the 10 runs, on one line
//   > dump DIR      < "ok", after dump(DIR)
#ifndef CHAIRLIFT_BENCH_RUN_ON_REQUEST_H_
#define CHAIRLIFT_BENCH_RUN_ON_REQUEST_H_

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "base/status.h"

namespace chairlift {

// Runs until standard input ends. `run()` and `dump(folder)` return a Status.
template <typename Run, typename Dump>
Status RunOnRequest(Run run, Dump dump) {
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, argument;
    words >> verb >> argument;
    if (verb == "run") {
      std::string times;
      for (int i = std::atoi(argument.c_str()); i > 0; --i) {
        const auto begin = std::chrono::steady_clock::now();
        CHAIRLIFT_RETURN_IF_ERROR(run());
        const auto time = std::chrono::steady_clock::now() - begin;
        times += fmt::format("{} ", std::chrono::nanoseconds(time).count());
      }
      std::cout << times << std::endl;
    } else if (verb == "dump") {
      CHAIRLIFT_RETURN_IF_ERROR(dump(argument));
      std::cout << "ok" << std::endl;
    } else {
      return InvalidArgument("'{}' is neither 'run N' nor 'dump DIR'", line);
    }
  }
  return absl::OkStatus();
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BENCH_RUN_ON_REQUEST_H_
