// The inner loops of Resize on float32, vectorised for the current machine.
#ifndef CHAIRLIFT_OPS_IMAGE_RESIZE_SIMD_H_
#define CHAIRLIFT_OPS_IMAGE_RESIZE_SIMD_H_

#include <cstdint>

namespace chairlift {

struct ResizeLoops {
  // out[i] = Σ_k weight[k] × rows[k][i], i < n.
  void (*blend_rows)(const float* const* rows, const float* weight, int taps, int64_t n,
                     float* out);
  // out[o] = Σ_k weight[k·n + o] × in[index[k·n + o]], o < n; `in` has `length` elements.
  void (*blend_columns)(const float* in, int64_t length, const int32_t* index, const float* weight,
                        int taps, int64_t n, float* out);
  // out[o·unit + j] = Σ_k weight[k·n + o] × in[index[k·n + o]·unit + j], o < n, j < unit.
  void (*blend_pixels)(const float* in, const int32_t* index, const float* weight, int taps,
                       int64_t n, int64_t unit, float* out);
  // Doubles the n elements with half-pixel centres: out[2i] = (in[i−1] + 3 in[i]) / 4 and out[2i+1]
  // = (3 in[i] + in[i+1]) / 4, with the ends repeated. n ≥ 1.
  void (*double_linear)(const float* in, int64_t n, float* out);
  // out[2i] = out[2i+1] = in[i], i < n.
  void (*double_nearest)(const uint32_t* in, int64_t n, uint32_t* out);
};
const ResizeLoops& GetResizeLoops();

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_IMAGE_RESIZE_SIMD_H_
