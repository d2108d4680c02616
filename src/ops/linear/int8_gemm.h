// Matrix products with 8-bit operands and exact 32-bit sums:
//   C(m, n) = f(row scale · column scale · Σ (A − row zero)(B − column zero) + bias + residual).
// B is constant and packed once. All kernels read the same packed form and give the same bits. So a
// row has the same result in any batch and on any machine, if f does.
//
// Inside, A is unsigned and B is signed: the other signs are shifted by 128 together with their
// zero points. Zero points are subtracted after the sum:
//   Σ (a − za)(b − zb) = Σ a·b − za · (Σ b − K · zb) − zb · Σ a, modulo 2³².
// Packed B is in panels of kGemmPanel columns. Each is ceil(K / 64) times two tiles of [16 fours of
// K, 16 columns, 4], with zeros past K and N. The parameters of the columns follow (Int8Columns in
// int8_gemm.cc).
#ifndef CHAIRLIFT_OPS_LINEAR_INT8_GEMM_H_
#define CHAIRLIFT_OPS_LINEAR_INT8_GEMM_H_

#include <cstdint>
#include <span>

#include "ops/linear/packed_gemm.h"

namespace chairlift {

enum class Int8Kernel : uint8_t {
  kAmx,       // AVX-512 VNNI for few rows; needs GrantTiles()
  kVnni,      // AVX-512 VNNI
  kVectors,   // any instruction set, in pairs of 16 bits
  kPortable,  // the tiles of kAmx in plain code: for tests
};
// The fastest one on this machine.
Int8Kernel MachineInt8Kernel();
// A name for people to read, such as "AMX".
const char* Int8KernelName(Int8Kernel kernel);

// Element (r, c) is at r · row_stride + c · column_stride bytes.
struct Int8Matrix {
  const void* data = nullptr;
  bool is_signed = false;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};
// Zero points and scales, one per row or column. Entry i is at i · stride. If a pointer is null,
// all zero points are 0, or all scales are 1. Zero points are signed if their matrix is.
struct Int8Parameters {
  const void* zeros = nullptr;
  int64_t zero_stride = 0;
  const float* scales = nullptr;
  int64_t scale_stride = 0;
};

int64_t PackedInt8Bytes(int64_t k, int64_t n);
void PackInt8Weights(const Int8Matrix& b, const Int8Parameters& columns, int64_t k, int64_t n,
                     void* packed);
// Rounds scale · B to 8 bits, with one scale for each column and without zero points. B(k, n) is
// b[k · k_stride + n · n_stride]. A column with a weight that is not finite gives NaN.
void PackRoundedWeights(const float* b, int64_t k_stride, int64_t n_stride, int64_t k, int64_t n,
                        float scale, void* packed);

// Panels [first, last) of one product's columns. C: element (m, n) at m · c_stride + n.
struct Int8Product {
  const void* packed;
  int64_t n;
  int64_t first, last;
  float* c;
  int64_t c_stride;
  GemmEpilogue epilogue;
};

// Computes all `products`, which share the rows of A [m, k]. No C may overlap A. Runs on the
// calling thread.
void Int8Gemm(Int8Kernel kernel, const Int8Matrix& a, const Int8Parameters& rows, int64_t m,
              int64_t k, std::span<const Int8Product> products);
// Rounds every row of A to 8 bits first, with a scale and a zero point for each row (int8_rows.h).
// A(m, k) is a[m · row_stride + k · k_stride]. A row with NaN or infinity gives NaN.
void RoundedInt8Gemm(Int8Kernel kernel, const float* a, int64_t row_stride, int64_t k_stride,
                     int64_t m, int64_t k, std::span<const Int8Product> products);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_INT8_GEMM_H_
