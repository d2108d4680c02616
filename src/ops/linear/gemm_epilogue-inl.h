// Bias, residual and activation on a newly computed tile of C. Included once per instruction set,
// after ops/linear/gemm_tile-inl.h.
#if defined(CHAIRLIFT_OPS_LINEAR_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_LINEAR_GEMM_EPILOGUE_INL_H_
#undef CHAIRLIFT_OPS_LINEAR_GEMM_EPILOGUE_INL_H_
#else
#define CHAIRLIFT_OPS_LINEAR_GEMM_EPILOGUE_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "ops/linear/activation-inl.h"
#include "ops/linear/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// Writes f(sums + bias + residual) to C. `sums` and `c` may be the same.
inline HWY_NOINLINE void Finish(const float* sums, int64_t sums_stride, float* c, int64_t c_stride,
                                const float* bias, const float* residual, int64_t residual_stride,
                                const Activation& activation, int64_t rows, int64_t columns) {
  const V alpha = hn::Set(kD, activation.alpha);
  const V beta = hn::Set(kD, activation.beta);
  const auto finish = [&](V x, const float* bias_at, const float* residual_at) HWY_ATTR {
    if (bias_at != nullptr) x = hn::Add(x, hn::LoadU(kD, bias_at));
    if (residual_at != nullptr) x = hn::Add(x, hn::LoadU(kD, residual_at));
    return VectorActivate(kD, activation.kind, alpha, beta, x);
  };
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = sums + r * sums_stride;
    float* row = c + r * c_stride;
    const float* residual_row = residual == nullptr ? nullptr : residual + r * residual_stride;
    int64_t n = 0;
    for (; n + kLanes <= columns; n += kLanes) {
      hn::StoreU(finish(hn::LoadU(kD, from + n), bias == nullptr ? nullptr : bias + n,
                        residual_row == nullptr ? nullptr : residual_row + n),
                 kD, row + n);
    }
    const size_t rest = static_cast<size_t>(columns - n) * sizeof(float);
    if (rest == 0) continue;
    float x[kLanes] = {}, b[kLanes] = {}, res[kLanes] = {};
    std::memcpy(x, from + n, rest);
    if (bias != nullptr) std::memcpy(b, bias + n, rest);
    if (residual != nullptr) std::memcpy(res, residual_row + n, rest);
    hn::StoreU(finish(hn::LoadU(kD, x), b, res), kD, x);
    std::memcpy(row + n, x, rest);
  }
}

// Applies the epilogue in place to columns [column, column + columns) of `rows` rows of C. The
// first row is at `c`.
inline HWY_NOINLINE void FinishColumns(float* c, int64_t c_stride, int64_t rows, int64_t column,
                                       int64_t columns, const GemmEpilogue& epilogue) {
  if (epilogue.bias == nullptr && epilogue.residual == nullptr &&
      epilogue.activation.kind == ActivationKind::kNone) {
    return;
  }
  Finish(c + column, c_stride, c + column, c_stride,
         epilogue.bias == nullptr ? nullptr : epilogue.bias + column,
         epilogue.residual == nullptr ? nullptr : epilogue.residual + column,
         epilogue.residual_stride, epilogue.activation, rows, columns);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_LINEAR_GEMM_EPILOGUE_INL_H_
