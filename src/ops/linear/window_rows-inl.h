// The inputs that a row of outputs reads, in place or copied with zero padding. Included once per
// instruction set from *_simd.cc files.
#if defined(CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_INL_H_
#undef CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_INL_H_
#else
#define CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_INL_H_
#endif

#include "hwy/highway.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/window_rows.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// The taps of one axis that meet the input, if tap 0 is at `start`.
struct Met {
  int64_t begin, end;
};
HWY_INLINE Met Meets(const WindowRows::Axis& a, int64_t start) {
  if (a.dilation == 1) {
    return {std::max<int64_t>(0, -start), std::min(a.taps, a.in - start)};
  }
  const int64_t begin = start >= 0 ? 0 : (-start + a.dilation - 1) / a.dilation;
  const int64_t end = start >= a.in ? 0 : (a.in - 1 - start) / a.dilation + 1;
  return {begin, std::min(end, a.taps)};
}

// Rows of inputs, from column `left` of the first output on: row i is at rows + (i − first) ·
// pitch, with `unit` floats between columns.
struct Inputs {
  const float* rows;
  int64_t first, pitch, unit;
};

// Copies the input columns that `count` outputs read, from column `left` on, for output rows
// [first, last). Columns outside the image become zeros.
HWY_INLINE Inputs WithEdges(const WindowRows& s, const float* x, int64_t left, int64_t count,
                            int64_t first, int64_t last, float* to) {
  const int64_t lanes = static_cast<int64_t>(kLanes);
  const int64_t columns = s.x.Reach(count);
  const int64_t top = std::max<int64_t>(0, first * s.y.stride - s.y.pad);
  const int64_t bottom = std::min(s.y.in, (last - 1) * s.y.stride - s.y.pad + s.y.Reach(1));
  const int64_t begin = std::clamp<int64_t>(-left, 0, columns);
  const int64_t end = std::clamp<int64_t>(s.x.in - left, begin, columns);
  const Inputs inputs{.rows = to, .first = top, .pitch = columns * lanes, .unit = lanes};
  for (int64_t iy = top; iy < bottom; ++iy, to += columns * lanes) {
    for (int64_t c = 0; c < begin; ++c) hn::StoreU(hn::Zero(kD), kD, to + c * lanes);
    const float* from = x + (iy * s.x.in + left) * s.block;
    for (int64_t c = begin; c < end; ++c) {
      hn::StoreU(hn::LoadU(kD, from + c * s.block), kD, to + c * lanes);
    }
    for (int64_t c = end; c < columns; ++c) hn::StoreU(hn::Zero(kD), kD, to + c * lanes);
  }
  return inputs;
}

// Adjacent outputs of a row. The sizes of a row's spans differ by at most 1.
struct OutputSpan {
  int64_t first, count, left;  // the column of its first tap
};
HWY_INLINE int64_t OutputSpans(const WindowRows& s) {
  return (s.x.out + WindowRows::kMaxOutputs - 1) / WindowRows::kMaxOutputs;
}
HWY_INLINE OutputSpan SpanAt(const WindowRows& s, int64_t span, int64_t spans) {
  const int64_t first = s.x.out * span / spans;
  return {first, s.x.out * (span + 1) / spans - first, first * s.x.stride - s.x.pad};
}

// The inputs that the span reads from a plane for output rows [first, last). They are used in place
// if all columns are inside the image. Otherwise they are copied to `scratch`, which has
// EdgeFloats() floats.
HWY_INLINE Inputs InputsOf(const WindowRows& s, const OutputSpan& span, const float* plane,
                           int64_t first, int64_t last, float* scratch) {
  const bool inside = span.left >= 0 && span.left + s.x.Reach(span.count) <= s.x.in;
  if (!inside) return WithEdges(s, plane, span.left, span.count, first, last, scratch);
  return {
      .rows = plane + span.left * s.block, .first = 0, .pitch = s.x.in * s.block, .unit = s.block};
}

}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#endif  // CHAIRLIFT_OPS_LINEAR_WINDOW_ROWS_INL_H_
