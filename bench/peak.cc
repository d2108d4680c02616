// Measures this machine's peak rates: float32 multiply-adds and read bandwidth, for 1..N threads.
// Prints one JSON object; the benchmarks divide by it.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "device/cpu/isa.h"
#include "device/cpu/peak_rates.h"

int main(int argc, char** argv) {
  const int max_threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (argc > 2 || max_threads < 1) {
    fmt::print(stderr, "usage: peak [THREADS]\n");
    return 2;
  }
  fmt::print("{{\"isa\": \"{}\", \"threads\": {{",
             chairlift::CpuIsaName(chairlift::ActiveCpuIsa()));
  for (int t = 1; t <= max_threads; ++t) {
    const chairlift::PeakRates peak = chairlift::MeasurePeakRates(t);
    fmt::print("{}\"{}\": {{\"gflops\": {:.1f}, \"memory_gbs\": {:.1f}, \"l3_gbs\": {:.1f}}}",
               t > 1 ? ", " : "", t, peak.gflops, peak.memory_gbs, peak.l3_gbs);
  }
  fmt::print("}}}}\n");
  return 0;
}
