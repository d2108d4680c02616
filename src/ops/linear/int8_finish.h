// Parts of int8_gemm.cc that are compiled for each instruction set.
#ifndef CHAIRLIFT_OPS_LINEAR_INT8_FINISH_H_
#define CHAIRLIFT_OPS_LINEAR_INT8_FINISH_H_

#include <cstdint>

#include "ops/linear/packed_gemm.h"

namespace chairlift {

// The parameters that convert the sums of one panel of columns to C.
struct Int8Finish {
  // By column [32]: Σ b − K · zero, zero (null if all are 0), scale.
  const int32_t* corrections;
  const int32_t* zeros;
  const float* scales;
  // By row: zero, scale, Σ a (used with column zeros).
  const int32_t* row_zeros;
  const float* row_scales;
  const int32_t* row_sums;
  // The first of the rows and columns.
  float* c;
  int64_t c_stride;
  GemmEpilogue epilogue;
};
// Rows [begin, end) of a whole panel; rows of `sums` are kGemmPanel apart.
using FinishInt8Rows = void (*)(const int32_t* sums, const Int8Finish& finish, int64_t begin,
                                int64_t end);
// The function for all epilogues with this activation that have the same operands (bias, residual).
// `same_rows`: all rows have the same zero point and scale.
FinishInt8Rows Int8Finisher(const GemmEpilogue& epilogue, bool same_rows);

// Computes exact sums [rows, 32] for up to 16 rows, in pairs of 16-bit numbers. A has one tile
// every 1 KiB, `steps` in total. B is one panel of `steps` times two tiles.
void Int8SumsInPairs(const uint8_t* a, int64_t steps, const int8_t* b, int64_t rows, int32_t* sums);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_INT8_FINISH_H_
