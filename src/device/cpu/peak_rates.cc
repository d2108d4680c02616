#include "device/cpu/peak_rates.h"

#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "device/cpu/cores.h"

namespace chairlift {
namespace {

// Runs `measure` on several threads that start together, and returns the sum of the results.
double Together(int threads, double (*measure)()) {
  const std::vector<int> cores = AllowedCores();
  std::vector<double> results(static_cast<size_t>(threads));
  std::vector<std::thread> pool;
  std::atomic<int> ready{0};
  for (size_t t = 0; t < results.size(); ++t) {
    pool.emplace_back([&, t] {
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      CPU_SET(cores[t % cores.size()], &cpus);
      sched_setaffinity(0, sizeof cpus, &cpus);
      ++ready;
      while (ready < threads) {
      }
      results[t] = measure();
    });
  }
  double sum = 0;
  for (size_t t = 0; t < results.size(); ++t) {
    pool[t].join();
    sum += results[t];
  }
  return sum;
}

}  // namespace

PeakRates MeasurePeakRates(int threads) {
  return {.gflops = Together(threads, MeasureFma),
          .memory_gbs = Together(threads, [] { return MeasureRead(size_t{256} << 20); }),
          .l3_gbs = Together(threads, [] { return MeasureRead(size_t{8} << 20); })};
}

}  // namespace chairlift
