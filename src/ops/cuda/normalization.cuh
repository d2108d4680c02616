// Launches of the kernels of normalization.cu. Pointers are device pointers; tensors are row-major.
#ifndef CHAIRLIFT_OPS_CUDA_NORMALIZATION_CUH_
#define CHAIRLIFT_OPS_CUDA_NORMALIZATION_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift::cuda {

inline constexpr int kMaxNormTerms = 3;
inline constexpr int kMaxNormDims = 8;

struct NormOperand {
  DType dtype = DType::kUndefined;
  const void* data = nullptr;  // null: absent
};

// One of the summands of a row: n elements at data + at · n. `at` is computed from the row's
// position and `strides`, or is the entry of `index` there (with Gather's range of −bound to bound
// − 1; otherwise DataFault::kIndexOutOfRange and zeros).
struct NormTerm {
  NormOperand values;
  const void* index = nullptr;
  int index_bytes = 0;  // 4 or 8; 0: no index
  int64_t bound = 0;    // rows of the table
  int64_t strides[kMaxNormDims] = {};
};

// y[r, :] = (s − mean(s)) / sqrt(var(s) + epsilon) · scale + shift, where s is the sum of the
// terms' rows for row r. Not `centred`: the mean counts as 0, also in var(s). y may be the memory
// of a term without an index.
struct NormRows {
  int64_t rows = 0, n = 0;
  double epsilon = 0;
  bool centred = true;
  int terms = 1;
  NormTerm term[kMaxNormTerms];
  // Row r is at a position in these dimensions (their product is `rows`). Without dimensions, `at`
  // is r · strides[0]. With dimensions there must be fewer than 2^31 rows.
  int dims = 0;
  int64_t dim[kMaxNormDims] = {};
  NormOperand scale, shift;  // [n]
  DType y_dtype = DType::kUndefined, sum_dtype = DType::kUndefined;
  void* y = nullptr;         // or null
  void* sum = nullptr;       // s, or null
  float* mean = nullptr;     // [rows], or null
  float* inv_std = nullptr;  // [rows], 1 / sqrt(var + epsilon), or null
  int* fault = nullptr;      // only if a term has an index
};
// Floats of any type. Types may differ, but double requires that all are double.
void LaunchLayerNorm(const NormRows& rows, cudaStream_t stream);

// y[i] = x[at(i)] for the n elements of a shape; element size in bytes.
struct SpreadMap {
  int64_t n = 0;
  int dims = 0;
  int64_t dim[kMaxNormDims] = {}, stride[kMaxNormDims] = {};
};
void LaunchSpread(const SpreadMap& map, size_t element_bytes, const void* x, void* y,
                  cudaStream_t stream);

// [outer, n, inner], along n. y may be x.
struct SoftmaxShape {
  int64_t outer = 0, n = 0, inner = 0;
  bool log = false;
};
void LaunchSoftmax(DType dtype, const SoftmaxShape& shape, const void* x, void* y,
                   cudaStream_t stream);

// y = a (x − mean) + bias by channel of [items, channels, plane], a = scale / sqrt(variance +
// epsilon). `scratch`: 3 · channels doubles. y may be x.
struct BatchNormShape {
  int64_t items = 0, channels = 0, plane = 0;
  double epsilon = 0;
};
void LaunchBatchNorm(DType dtype, const BatchNormShape& shape, const void* x,
                     const NormOperand& scale, const NormOperand& bias, const NormOperand& mean,
                     const NormOperand& variance, void* scratch, void* y, cudaStream_t stream);

// Normalises each group of [items, groups, channels, plane] to mean 0 and variance 1, then applies
// scale and bias by channel ([groups · channels]).
struct GroupNormShape {
  int64_t items = 0, groups = 0, channels = 0, plane = 0;
  double epsilon = 0;
};
void LaunchGroupNorm(DType dtype, const GroupNormShape& shape, const void* x,
                     const NormOperand& scale, const NormOperand& bias, void* y,
                     cudaStream_t stream);

// Divides vectors along n of [outer, n, inner] by their 1-norm or 2-norm (`squares`); zero vectors
// stay zero.
struct LpNormShape {
  int64_t outer = 0, n = 0, inner = 0;
  bool squares = true;
};
void LaunchLpNorm(DType dtype, const LpNormShape& shape, const void* x, void* y,
                  cudaStream_t stream);

// (x − mean) / (standard deviation + 1e-9) over `count` elements of each of `groups`. The position
// in the kept dimensions gives the group's first element, that in the reduced ones its elements.
struct MeanVarianceShape {
  int64_t groups = 0, count = 0;
  int kept = 0, reduced = 0;
  int64_t kept_dim[kMaxNormDims] = {}, kept_stride[kMaxNormDims] = {};
  int64_t reduced_dim[kMaxNormDims] = {}, reduced_stride[kMaxNormDims] = {};
};
void LaunchMeanVariance(DType dtype, const MeanVarianceShape& shape, const void* x, void* y,
                        cudaStream_t stream);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_NORMALIZATION_CUH_
