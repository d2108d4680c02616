// Measured peak rates of this machine's cores: the bounds that profiles and benchmarks divide by.
#ifndef CHAIRLIFT_DEVICE_CPU_PEAK_RATES_H_
#define CHAIRLIFT_DEVICE_CPU_PEAK_RATES_H_

#include <cstddef>

namespace chairlift {

// --- Of the calling thread

// float32 multiply-adds, in GFLOP/s.
double MeasureFma();
// Multiply-adds of pairs of 16-bit integers into 32 bits, which 8-bit matrix products consist of,
// in GOP/s.
double MeasureIntegerPairs();
// bfloat16 multiply-adds in AMX tiles, in GFLOP/s; 0 if ActiveCpuIsa() is not kAmx.
double MeasureTiles();
// Likewise of bytes, in GOP/s.
double MeasureInt8Tiles();
// Repeated reads of a buffer of `bytes` bytes, in GB/s.
double MeasureRead(size_t bytes);

// --- Of several threads at the same time, each on its own core

struct PeakRates {
  double gflops = 0;
  double memory_gbs = 0;  // reading
  double l3_gbs = 0;      // repeated reads of 8 MiB per thread
};
// Takes about a second.
PeakRates MeasurePeakRates(int threads);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_PEAK_RATES_H_
