// What this machine can do at most: float32 multiply-adds and read bandwidth, for 1..N threads.
// Prints one JSON object; the benchmarks divide by it.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device/cpu/isa.h"
#include "peak_rates.h"

namespace chairlift {
namespace {

template <typename F>
double Together(int threads, F measure) {
  std::vector<double> results(threads);
  std::vector<std::thread> pool;
  std::atomic<int> ready{0};
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      CPU_SET(t, &cpus);
      sched_setaffinity(0, sizeof cpus, &cpus);
      ++ready;
      while (ready < threads) {
      }
      results[t] = measure();
    });
  }
  double sum = 0;
  for (int t = 0; t < threads; ++t) {
    pool[t].join();
    sum += results[t];
  }
  return sum;
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  using chairlift::MeasureFma, chairlift::MeasureRead, chairlift::Together;
  const int max_threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2;
  fmt::print("{{\"isa\": \"{}\", \"threads\": {{",
             chairlift::CpuIsaName(chairlift::ActiveCpuIsa()));
  for (int t = 1; t <= max_threads; ++t) {
    fmt::print("{}\"{}\": {{\"gflops\": {:.1f}, \"memory_gbs\": {:.1f}, \"l3_gbs\": {:.1f}}}",
               t > 1 ? ", " : "", t, Together(t, MeasureFma),
               Together(t, [] { return MeasureRead(size_t{256} << 20); }),
               Together(t, [] { return MeasureRead(size_t{8} << 20); }));
  }
  fmt::print("}}}}\n");
  return 0;
}
