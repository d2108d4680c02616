// The recurrent product of one block of units, for the rows of a step.
#ifndef CHAIRLIFT_OPS_RECURRENT_STEP_PRODUCT_H_
#define CHAIRLIFT_OPS_RECURRENT_STEP_PRODUCT_H_

#include <cstdint>

namespace chairlift {

// c [rows, panels · 32] = a [rows, k] · packed, in panels of ops/linear/packed_gemm.h.
struct StepProduct {
  int64_t rows = 0;
  int64_t k = 0;
  const float* a = nullptr;  // rows a_stride apart
  int64_t a_stride = 0;
  const float* packed = nullptr;
  int64_t panels = 0;
  bool half = false;   // the last of them has kHalfPanel columns, and no more are written
  float* c = nullptr;  // rows c_stride apart
  int64_t c_stride = 0;
  // For at most kFewStepRows rows, panels may be apart: this many floats between them, in `packed`
  // and in a row of c. 0: contiguous.
  int64_t panel_stride = 0;
  int64_t c_panel_stride = 0;
  // Prefetched into the second-level cache meanwhile: the panels of the next product, or null, and
  // places of 128 bytes each that the caller reads next.
  const float* next_packed = nullptr;
  const float* const* wanted = nullptr;
  int64_t num_wanted = 0;
};
void Compute(const StepProduct& product);

// Up to this many rows nothing is prefetched: loading the weights from memory is the bottleneck.
inline constexpr int64_t kFewStepRows = 8;

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_STEP_PRODUCT_H_
