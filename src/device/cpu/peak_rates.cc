#include "device/cpu/peak_rates.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "device/cpu/cores.h"
#include "device/cpu/isa.h"
#include "device/cpu/tiles.h"

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

#if defined(__x86_64__)
// The rate of a step of four products of tiles with `depth` elements of K; 0 without tiles.
template <typename Step>
double TileRate(int depth, Step step) {
  if (ActiveCpuIsa() != CpuIsa::kAmx) return 0;
  constexpr int kSteps = 20000, kRounds = 5, kProducts = 4;
  const double work = 2.0 * 16 * 16 * depth * kProducts * kSteps;
  const TileScope scope;
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) step();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    best = std::max(best, work / time.count() / 1e9);
  }
  return best;
}
#endif

}  // namespace

double MeasureTiles() {
#if defined(__x86_64__)
  return TileRate(32, [] {
    asm volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n\ttdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n\ttdpbf16ps %tmm7, %tmm5, %tmm3");
  });
#else
  return 0;
#endif
}

double MeasureInt8Tiles() {
#if defined(__x86_64__)
  return TileRate(64, [] {
    asm volatile(
        "tdpbusd %tmm6, %tmm4, %tmm0\n\ttdpbusd %tmm7, %tmm4, %tmm1\n\t"
        "tdpbusd %tmm6, %tmm5, %tmm2\n\ttdpbusd %tmm7, %tmm5, %tmm3");
  });
#else
  return 0;
#endif
}

PeakRates MeasurePeakRates(int threads) {
  return {.gflops = Together(threads, MeasureFma),
          .memory_gbs = Together(threads, [] { return MeasureRead(size_t{256} << 20); }),
          .l3_gbs = Together(threads, [] { return MeasureRead(size_t{8} << 20); })};
}

}  // namespace chairlift
