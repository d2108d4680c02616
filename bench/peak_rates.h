// What one thread of this machine can do at most, as measured: the benchmarks divide by it.
#ifndef CHAIRLIFT_BENCH_PEAK_RATES_H_
#define CHAIRLIFT_BENCH_PEAK_RATES_H_

#include <cstddef>

namespace chairlift {

// float32 multiply-adds, in GFLOP/s.
double MeasureFma();
// Multiply-adds of pairs of 16-bit integers into 32 bits, of which products of bytes are made, in
// GOP/s.
double MeasureIntegerPairs();
// Reading a buffer of so many bytes again and again, in GB/s.
double MeasureRead(size_t bytes);

}  // namespace chairlift

#endif  // CHAIRLIFT_BENCH_PEAK_RATES_H_
