// ArgMax and ArgMin: where along an axis the extremum is; Hardmax: 1 there and 0 elsewhere.
//
// NaN is never an extremum, unless at the first place.
#include <algorithm>
#include <utility>

#include "ops/axes.h"
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

// The place of the extremum of n elements `stride` apart; of equals the first, or the last.
template <typename T, bool kMax, bool kLast>
int64_t ArgExtremum(const T* x, int64_t n, int64_t stride) {
  int64_t best = 0;
  T value = x[0];
  for (int64_t i = 1; i < n; ++i) {
    const T v = x[i * stride];
    const bool better = kMax ? (kLast ? v >= value : v > value) : (kLast ? v <= value : v < value);
    if (better) {
      best = i;
      value = v;
    }
  }
  return best;
}

template <typename T>
using ArgFn = int64_t (*)(const T*, int64_t, int64_t);

template <typename T>
ArgFn<T> FindArg(bool max, bool last) {
  if (max) return last ? ArgExtremum<T, true, true> : ArgExtremum<T, true, false>;
  return last ? ArgExtremum<T, false, true> : ArgExtremum<T, false, false>;
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

constexpr int64_t kMinElementsToShare = int64_t{1} << 16;

template <bool kMax>
StatusOr<std::unique_ptr<Kernel>> CompileArg(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), shape.rank()));
  const bool last = context.attributes.Int("select_last_index", 0) != 0;
  const AxisSplit split = SplitAt(shape, axis);
  return DispatchNumeric(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([split, find = FindArg<T>(kMax, last)](const KernelArgs& args) {
          const T* x = static_cast<const T*>(args.inputs[0]);
          auto* out = static_cast<int64_t*>(args.outputs[0]);
          const int64_t count = split.outer * split.inner;
          const auto run = [&](int64_t first, int64_t end) {
            for (int64_t k = first; k < end; ++k) {
              const T* start = x + k / split.inner * split.n * split.inner + k % split.inner;
              out[k] = find(start, split.n, split.inner);
            }
          };
          const int64_t parts = std::min<int64_t>(count, 4 * args.team.width());
          if (parts < 2 || count * split.n < kMinElementsToShare) {
            run(0, count);
          } else {
            args.team.For(static_cast<int>(parts), [&](int part, int) {
              run(count * part / parts, count * (part + 1) / parts);
            });
          }
          return absl::OkStatus();
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

}  // namespace

void RegisterArgReduce(OperatorRegistry& registry) {
  registry.Add({.name = "ArgMax",
                .input_types = {kNumericTypes},
                .infer = InferArg,
                .compile = CompileArg<true>});
  registry.Add({.name = "ArgMin",
                .input_types = {kNumericTypes},
                .infer = InferArg,
                .compile = CompileArg<false>});
  registry.Add({.name = "Hardmax",
                .input_types = {kFloatTypes},
                .infer = InferHardmax,
                .compile = CompileHardmax});
}

}  // namespace chairlift
