// Launches of the kernels of normalization.cu. Pointers are the device's; tensors are row-major.
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

// One of the summands of a row: n elements at data + at · n, where `at` is what the place of the
// row gives by `strides`, or the entry of `index` there (as Gather counts: from −bound to
// bound − 1; DataFault::kIndexOutOfRange and zeros otherwise).
struct NormTerm {
  NormOperand values;
  const void* index = nullptr;
  int index_bytes = 0;  // 4 or 8; 0: no index
  int64_t bound = 0;    // rows of the table
  int64_t strides[kMaxNormDims] = {};
};

// y[r, :] = (s − mean(s)) / sqrt(var(s) + epsilon) · scale + shift, s being the sum of the terms'
// rows for row r. Not `centred`: without the mean, which counts as 0 in var(s) too. y may be the
// memory of a term without an index.
struct NormRows {
  int64_t rows = 0, n = 0;
  double epsilon = 0;
  bool centred = true;
  int terms = 1;
  NormTerm term[kMaxNormTerms];
  // Row r is at a place of these dimensions (their product is `rows`); none: at is
  // r · strides[0]. Fewer than 2^31 rows where there are dimensions.
  int dims = 0;
  int64_t dim[kMaxNormDims] = {};
  NormOperand scale, shift;  // [n]
  DType y_dtype = DType::kUndefined, sum_dtype = DType::kUndefined;
  void* y = nullptr;         // or null
  void* sum = nullptr;       // s, or null
  float* mean = nullptr;     // [rows], or null
  float* inv_std = nullptr;  // [rows], 1 / sqrt(var + epsilon), or null
  int* fault = nullptr;      // only where a term has an index
};
// Floats of any type; they may differ, but none is double unless all are.
void LaunchLayerNorm(const NormRows& rows, cudaStream_t stream);

// y[i] = x[at(i)] for the n elements of a shape, of elements of so many bytes.
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

// Each group of [items, groups, channels, plane] to mean 0 and variance 1, then scale and bias by
// channel ([groups · channels]).
struct GroupNormShape {
  int64_t items = 0, groups = 0, channels = 0, plane = 0;
  double epsilon = 0;
};
void LaunchGroupNorm(DType dtype, const GroupNormShape& shape, const void* x,
                     const NormOperand& scale, const NormOperand& bias, void* y,
                     cudaStream_t stream);

// Vectors along n of [outer, n, inner] divided by their 1- or 2-norm (`squares`); zero stays zero.
struct LpNormShape {
  int64_t outer = 0, n = 0, inner = 0;
  bool squares = true;
};
void LaunchLpNorm(DType dtype, const LpNormShape& shape, const void* x, void* y,
                  cudaStream_t stream);

// (x − mean) / (standard deviation + 1e-9) over `count` elements of each of `groups`: places of the
// kept dimensions give the group's first element, places of the reduced ones its elements.
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
