// ArgMax and ArgMin: the index of the extremum along an axis; Hardmax: 1 there and 0 elsewhere.
//
// NaN counts as the extremum.
#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/ranges.h"
#include "ops/reduction/fold_simd.h"
#include "ops/reduction/reduction.h"

namespace chairlift {
namespace {

// The tensor as [outer, n, inner] around the axis.
struct AxisSplit {
  int64_t outer, n, inner;
};
AxisSplit SplitAt(const Shape& shape, int axis) {
  return {shape.NumElements(0, axis), shape[axis], shape.NumElements(axis + 1, shape.rank())};
}

// Whether v, which comes later, replaces the extremum so far, `best`. For ties, including NaN, the
// first stays or the last replaces it.
template <bool kMax, bool kLast, typename T>
bool GivesWay(T best, T v) {
  if constexpr (kLast) {
    return !(kMax ? v < best : v > best) && (best == best || v != v);
  } else {
    return !(kMax ? v <= best : v >= best) && best == best;
  }
}

// The index of the extremum of n elements `stride` apart; for ties the first, or the last.
template <typename T, bool kMax, bool kLast>
int64_t ArgExtremum(const T* x, int64_t n, int64_t stride) {
  int64_t best = 0;
  T value = x[0];
  for (int64_t i = 1; i < n; ++i) {
    const T v = x[i * stride];
    if (GivesWay<kMax, kLast>(value, v)) {
      best = i;
      value = v;
    }
  }
  return best;
}

Status InferArg(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  context.set_output(0, DType::kInt64, SymbolicShape());
  if (!shape.has_rank()) return absl::OkStatus();
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes().Int("axis", 0), shape.rank()));
  if (shape[axis].known() && shape[axis].value() == 0) {
    return InvalidArgument("axis {} has no elements to choose from", axis);
  }
  const bool keep = context.attributes().Int("keepdims", 1) != 0;
  std::vector<Dim> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) {
      dims.push_back(shape[i]);
    } else if (keep) {
      dims.emplace_back(1);
    }
  }
  context.set_output(0, DType::kInt64, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

// The extremum of n adjacent floats, then its index.
template <bool kMax>
int64_t ArgExtremumOfRow(const float* x, int64_t n, bool last) {
  const auto value =
      static_cast<float>(FindFold(kMax ? FloatFold::kMax : FloatFold::kMin).row(x, n, 0));
  const auto is = [value](float v) { return value == value ? v == value : v != v; };
  if (last) {
    for (int64_t i = n - 1; i > 0; --i) {
      if (is(x[i])) return i;
    }
    return 0;
  }
  return std::find_if(x, x + n, is) - x;
}

// Columns [first, last) of [n, inner], adjacent ones together.
template <typename T, bool kMax, bool kLast>
void ArgOfColumns(const T* x, int64_t n, int64_t inner, int64_t first, int64_t last, int64_t* out) {
  constexpr int64_t kColumns = 128;
  T best[kColumns];
  int32_t place[kColumns];
  for (int64_t begin = first; begin < last; begin += kColumns) {
    const int64_t cols = std::min(kColumns, last - begin);
    std::copy_n(x + begin, cols, best);
    std::fill_n(place, cols, 0);
    for (int64_t i = 1; i < n; ++i) {
      const T* row = x + i * inner + begin;
      for (int64_t c = 0; c < cols; ++c) {
        const T v = row[c];
        const bool better = GivesWay<kMax, kLast>(best[c], v);
        best[c] = better ? v : best[c];
        place[c] = better ? static_cast<int32_t>(i) : place[c];
      }
    }
    std::copy_n(place, cols, out + begin);
  }
}

constexpr int64_t kMinArgElementsToShare = int64_t{1} << 16;

template <typename T, bool kMax, bool kLast>
Status RunArg(const AxisSplit& split, const KernelArgs& args) {
  const T* x = static_cast<const T*>(args.inputs[0]);
  auto* out = static_cast<int64_t*>(args.outputs[0]);
  const int64_t size = split.outer * split.n * split.inner;
  if (split.inner == 1) {
    ForRanges(args.team, split.outer, size, kMinArgElementsToShare,
              [&](int64_t first, int64_t end) {
                for (int64_t k = first; k < end; ++k) {
                  if constexpr (std::is_same_v<T, float>) {
                    out[k] = ArgExtremumOfRow<kMax>(x + k * split.n, split.n, kLast);
                  } else {
                    out[k] = ArgExtremum<T, kMax, kLast>(x + k * split.n, split.n, 1);
                  }
                }
              });
    return absl::OkStatus();
  }
  // A unit is up to kColumns columns of one outer index.
  constexpr int64_t kColumns = 1024;
  const int64_t per_outer = (split.inner + kColumns - 1) / kColumns;
  ForRanges(args.team, split.outer * per_outer, size, kMinArgElementsToShare,
            [&](int64_t first, int64_t end) {
              for (int64_t unit = first; unit < end; ++unit) {
                const int64_t outer = unit / per_outer;
                const int64_t column = unit % per_outer * kColumns;
                ArgOfColumns<T, kMax, kLast>(
                    x + outer * split.n * split.inner, split.n, split.inner, column,
                    std::min(split.inner, column + kColumns), out + outer * split.inner);
              }
            });
  return absl::OkStatus();
}

template <bool kMax>
StatusOr<std::unique_ptr<Kernel>> CompileArg(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), shape.rank()));
  const bool last = context.attributes.Int("select_last_index", 0) != 0;
  const AxisSplit split = SplitAt(shape, axis);
  if (split.n > std::numeric_limits<int32_t>::max()) {
    return Unimplemented("axis {} has {} elements", axis, split.n);
  }
  return DispatchNumeric(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        const auto run = last ? RunArg<T, kMax, true> : RunArg<T, kMax, false>;
        return MakeKernel([split, run](const KernelArgs& args) {
          return split.outer * split.inner == 0 ? absl::OkStatus() : run(split, args);
        });
      });
}

Status InferHardmax(InferContext& context) {
  context.set_output(0, context.dtype(0), context.shape(0));
  if (!context.shape(0).has_rank()) return absl::OkStatus();
  return NormalizeAxis(context.attributes().Int("axis", -1), context.shape(0).rank()).status();
}

StatusOr<std::unique_ptr<Kernel>> CompileHardmax(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const AxisSplit split = SplitAt(shape, axis);
  return DispatchFloat(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([split](const KernelArgs& args) {
          const T* x = static_cast<const T*>(args.inputs[0]);
          T* out = static_cast<T*>(args.outputs[0]);
          const int64_t block = split.n * split.inner;
          std::fill_n(out, split.outer * block, T{0});
          if (split.n == 0) return absl::OkStatus();
          for (int64_t k = 0; k < split.outer * split.inner; ++k) {
            const int64_t start = k / split.inner * block + k % split.inner;
            const int64_t place = ArgExtremum<T, true, false>(x + start, split.n, split.inner);
            out[start + place * split.inner] = T{1};
          }
          return absl::OkStatus();
        });
      });
}

StatusOr<AxisMap> ArgAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, AxesButOne<0>(context));
  const bool keep = context.attributes().Int("keepdims", 1) != 0;
  if (!keep) std::erase(map.outputs[0].labels, AxisMap::kNone);
  return map;
}

}  // namespace

void RegisterArgReduce(OperatorRegistry& registry) {
  registry.Add({.name = "ArgMax",
                .input_types = {kNumericTypes},
                .infer = InferArg,
                .axes = ArgAxes,
                .compile = CompileArg<true>});
  registry.Add({.name = "ArgMin",
                .input_types = {kNumericTypes},
                .infer = InferArg,
                .axes = ArgAxes,
                .compile = CompileArg<false>});
  registry.Add({.name = "Hardmax",
                .input_types = {kFloatTypes},
                .infer = InferHardmax,
                .axes = AxesButOne<-1>,
                .compile = CompileHardmax});
}

}  // namespace chairlift
