// What this machine's cores can do at most, as measured: the bounds that profiles and benchmarks
// divide by.
#ifndef CHAIRLIFT_DEVICE_CPU_PEAK_RATES_H_
#define CHAIRLIFT_DEVICE_CPU_PEAK_RATES_H_

#include <cstddef>

namespace chairlift {

// --- Of the calling thread.

// float32 multiply-adds, in GFLOP/s.
double MeasureFma();
// Multiply-adds of pairs of 16-bit integers into 32 bits, which products of bytes consist of, in
// GOP/s.
double MeasureIntegerPairs();
// Reading a buffer of so many bytes again and again, in GB/s.
double MeasureRead(size_t bytes);

// --- Of several threads at once, each on a core of its own.

struct PeakRates {
  double gflops = 0;
  double memory_gbs = 0;  // reading
  double l3_gbs = 0;      // reading 8 MiB a thread again and again
};
// Takes about a second.
PeakRates MeasurePeakRates(int threads);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_PEAK_RATES_H_
