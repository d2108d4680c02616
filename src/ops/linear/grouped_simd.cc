// The kernel of grouped.h, one build per instruction set. Several adjacent outputs are summed in
// registers together, so that a tap's weights are read once for all of them.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/grouped_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/grouped.h"
#include "ops/linear/window_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// The operand of a vector of outputs: one input channel for all lanes, or one channel of each
// lane's group. The latter are in one vector of channels, or in two.
enum class Operand { kChannel, kVector, kTwoVectors };

// Vectors of kLanes channels from `first` on, in place or copied.
struct Vectors {
  Inputs in;  // vector `first`
  int64_t first;
  int64_t in_block, block_pitch, pitch;  // vectors per block; floats between blocks, and between
                                         // vectors

  HWY_INLINE const float* At(int64_t vector) const {
    return in.rows + vector / in_block * block_pitch + vector % in_block * pitch;
  }
};

// One input channel of the group of each output in [first, first + kLanes).
struct LaneChannels {
  int64_t vectors[2];
  int32_t lanes[kLanes];  // within either vector
  int in_first;           // number of outputs that read the first vector
};

LaneChannels ChannelsOfLanes(const Grouped& s, int64_t first, int64_t k) {
  LaneChannels c{};
  const int64_t count = std::min<int64_t>(kLanes, s.out_channels - first);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t channel = (first + i) / s.out_group * s.in_group + k;
    if (i == 0) c.vectors[0] = channel / kLanes;
    c.vectors[1] = channel / kLanes;
    c.in_first += c.vectors[1] == c.vectors[0];
    c.lanes[i] = static_cast<int32_t>(channel % kLanes);
  }
  return c;
}

constexpr int kMostOfGroup = 16;  // fewer than a block

// The inputs that a vector of outputs reads: channels [first, last), or `of_lanes` one after the
// other.
struct Read {
  Grouped::Range channels;
  LaneChannels of_lanes[kMostOfGroup];
};

// kCount adjacent outputs at `y`, whose taps along x are all in `vectors`, in rows [first, last);
// one vector each.
template <int kCount, Operand kOperand>
HWY_NOINLINE void SumOutputs(const Grouped& shape, const Read& read, const Vectors& vectors,
                             const float* HWY_RESTRICT w, const float* bias, const float* residual,
                             int64_t first, int64_t last, float* HWY_RESTRICT y) {
  const WindowRows& s = shape.rows;
  const Inputs& in = vectors.in;
  const int64_t block = s.block, step = s.x.stride * in.unit, hop = s.x.dilation * in.unit;
  const int64_t down = s.y.dilation * in.pitch, row = s.x.out * block;
  const int64_t planes = kOperand == Operand::kChannel ? read.channels.size() : shape.in_group;
  const V start = bias == nullptr ? hn::Zero(kD) : hn::LoadU(kD, bias);
  for (int64_t oy = first; oy < last; ++oy) {
    V sums[kCount];
    CHAIRLIFT_UNROLL
    for (int i = 0; i < kCount; ++i) sums[i] = start;
    const int64_t top = oy * s.y.stride - s.y.pad;
    const Met ys = Meets(s.y, top);
    const int64_t begin = (top + ys.begin * s.y.dilation - in.first) * in.pitch;
    for (int64_t plane = 0; plane < planes; ++plane) {
      const LaneChannels& of = read.of_lanes[kOperand == Operand::kChannel ? 0 : plane];
      const auto lanes = hn::SetTableIndices(kD, of.lanes);
      const auto in_first = hn::FirstN(kD, static_cast<size_t>(of.in_first));
      const float* line;
      int64_t second = 0;
      if constexpr (kOperand == Operand::kChannel) {
        const int64_t c = read.channels.first + plane;
        line = vectors.At(c / kLanes) + c % kLanes;
      } else {
        line = vectors.At(of.vectors[0]);
        if (kOperand == Operand::kTwoVectors) second = vectors.At(of.vectors[1]) - line;
      }
      line += begin;
      const float* weights = w + (plane * s.y.taps + ys.begin) * s.x.taps * block;
      for (int64_t ty = ys.begin; ty < ys.end; ++ty, line += down) {
        const float* from = line;
        for (int64_t tx = 0; tx < s.x.taps; ++tx, from += hop, weights += block) {
          const V weight = hn::LoadU(kD, weights);
          CHAIRLIFT_UNROLL
          for (int i = 0; i < kCount; ++i) {
            V x;
            if constexpr (kOperand == Operand::kChannel) {
              x = hn::Set(kD, from[i * step]);
            } else {
              x = hn::TableLookupLanes(hn::LoadU(kD, from + i * step), lanes);
              if constexpr (kOperand == Operand::kTwoVectors) {
                const V more = hn::TableLookupLanes(hn::LoadU(kD, from + second + i * step), lanes);
                x = hn::IfThenElse(in_first, x, more);
              }
            }
            sums[i] = hn::MulAdd(x, weight, sums[i]);
          }
        }
      }
    }
    if (residual != nullptr) {
      CHAIRLIFT_UNROLL
      for (int i = 0; i < kCount; ++i) {
        sums[i] = hn::Add(sums[i], hn::LoadU(kD, residual + oy * row + i * block));
      }
    }
    CHAIRLIFT_UNROLL
    for (int i = 0; i < kCount; ++i) hn::StoreU(sums[i], kD, y + oy * row + i * block);
  }
}

using SumFn = decltype(&SumOutputs<1, Operand::kChannel>);

template <Operand kOperand>
HWY_INLINE SumFn ByCount(int64_t count) {
  static constexpr SumFn kByCount[WindowRows::kMaxOutputs] = {
      SumOutputs<1, kOperand>, SumOutputs<2, kOperand>, SumOutputs<3, kOperand>,
      SumOutputs<4, kOperand>, SumOutputs<5, kOperand>, SumOutputs<6, kOperand>,
      SumOutputs<7, kOperand>, SumOutputs<8, kOperand>};
  return kByCount[count - 1];
}

SumFn FunctionFor(Operand operand, int64_t count) {
  switch (operand) {
    case Operand::kVector:
      return ByCount<Operand::kVector>(count);
    case Operand::kTwoVectors:
      return ByCount<Operand::kTwoVectors>(count);
    default:
      return ByCount<Operand::kChannel>(count);
  }
}

// Vectors of `channels`: in place or, if some columns of the span are outside the image, copied to
// `scratch`.
Vectors VectorsOf(const WindowRows& s, const Grouped::Range& channels, const float* x,
                  const OutputSpan& span, int64_t first, int64_t last, float* scratch) {
  const int64_t in_block = s.block / kLanes;
  if (span.left >= 0 && span.left + s.x.Reach(span.count) <= s.x.in) {
    return {InputsOf(s, span, x, first, last, nullptr), 0, in_block, s.InPlane(), kLanes};
  }
  const int64_t rows = std::min(s.y.Reach(last - first), s.y.in);
  const int64_t pitch = s.x.Reach(span.count) * rows * kLanes;
  const int64_t start = channels.first / kLanes;
  Vectors vectors{{}, start, 1, pitch, 0};
  for (int64_t v = start; v * kLanes < channels.last; ++v) {
    const Inputs in = WithEdges(s, x + v / in_block * s.InPlane() + v % in_block * kLanes,
                                span.left, span.count, first, last, scratch + (v - start) * pitch);
    if (v == start) vectors.in = in;
  }
  vectors.in.rows -= start * pitch;
  return vectors;
}

// A vector of the block, starting at `lane`.
void Lanes(const Grouped& s, int64_t out_block, int lane, const float* x, const float* w,
           const float* bias, const float* residual, int64_t first, int64_t last, float* y,
           float* scratch) {
  const WindowRows& rows = s.rows;
  const int64_t output = out_block * rows.block + lane, row = rows.x.out * rows.block;
  const int64_t left = std::clamp<int64_t>(s.out_channels - output, 0, kLanes);
  if (left == 0) {  // all are padding of the block
    for (float* at = y + first * row; at < y + last * row; at += rows.block) {
      hn::StoreU(hn::Zero(kD), kD, at);
    }
    return;
  }
  const auto there = hn::FirstN(kD, static_cast<size_t>(left));
  Read read;
  read.channels = s.Channels(out_block);
  read.of_lanes[0] = {};  // not used, but converted to indices
  Operand operand = Operand::kChannel;
  if (s.by_lanes) {
    operand = Operand::kVector;
    for (int64_t k = 0; k < s.in_group; ++k) {
      read.of_lanes[k] = ChannelsOfLanes(s, output, k);
      if (read.of_lanes[k].in_first < left) operand = Operand::kTwoVectors;
    }
  }
  const V alpha = hn::Set(kD, s.activation.alpha), beta = hn::Set(kD, s.activation.beta);
  const int64_t spans = OutputSpans(rows), at_once = s.RowsAtOnce();
  for (int64_t oy = first; oy < last; oy += at_once) {
    const int64_t end = std::min(last, oy + at_once);
    for (int64_t i = 0; i < spans; ++i) {
      const OutputSpan span = SpanAt(rows, i, spans);
      const int64_t at = span.first * rows.block;
      FunctionFor(operand, span.count)(
          s, read, VectorsOf(rows, read.channels, x, span, oy, end, scratch), w, bias,
          residual == nullptr ? nullptr : residual + at, oy, end, y + at);
    }
    // Works on sums in memory, because activations that call functions would spill registers.
    if (left == kLanes && s.activation.kind == ActivationKind::kNone) continue;
    for (float* at = y + oy * row; at < y + end * row; at += rows.block) {
      const V v = VectorActivate(kD, s.activation.kind, alpha, beta, hn::LoadU(kD, at));
      hn::StoreU(hn::IfThenElseZero(there, v), kD, at);
    }
  }
}

int64_t LanesOfVector() { return kLanes; }

void Rows(const Grouped& s, int64_t out_block, const float* x, const float* w, const float* bias,
          const float* residual, int64_t first, int64_t last, float* y, float* scratch) {
  for (int lane = 0; lane < s.rows.block; lane += kLanes) {
    Lanes(s, out_block, lane, x, w + lane, bias == nullptr ? nullptr : bias + lane,
          residual == nullptr ? nullptr : residual + lane, first, last, y + lane, scratch);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(LanesOfVector);
HWY_EXPORT(Rows);

int64_t GroupedLanes() { return HWY_DYNAMIC_DISPATCH(LanesOfVector)(); }

void GroupedRows(const Grouped& shape, int64_t out_block, const float* x, const float* w,
                 const float* bias, const float* residual, int64_t first, int64_t last, float* y,
                 float* scratch) {
  HWY_DYNAMIC_DISPATCH(Rows)
  (shape, out_block, x, w, bias, residual, first, last, y, scratch);
}

}  // namespace chairlift
#endif  // HWY_ONCE
