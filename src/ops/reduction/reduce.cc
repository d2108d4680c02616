// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceLogSum,
// ReduceLogSumExp, ReduceSumSquare.
//
// Over no axes (noop_with_empty_axes) each element is folded alone: its square, its absolute value.
// Over no elements: sums are 0, products 1, maxima and minima the lowest and highest value of the
// type, means NaN (0 for integers). Integer sums and products wrap around.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ops/axis_map.h"
#include "ops/extrema.h"
#include "ops/ranges.h"
#include "ops/reduction/fold_simd.h"
#include "ops/reduction/reduce_plan.h"
#include "ops/reduction/reduction.h"
#include "ops/saturate.h"

namespace chairlift {
namespace {

// For each operator: an accumulator for elements of type T, and the result from it.
template <typename T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double,
                                std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
// Sums of integers wrap like unsigned ones.
template <typename T>
using SumOf = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

struct Sum {
  static constexpr FloatFold kFold = FloatFold::kSum;
  template <typename T>
  struct For {
    using Acc = SumOf<T>;
    static constexpr Acc kStart = 0;
    static void Add(Acc& acc, T x) { acc += static_cast<Acc>(x); }
    static double Value(Acc acc) {
      return std::is_signed_v<T> && std::is_integral_v<T>
                 ? static_cast<double>(static_cast<int64_t>(acc))
                 : static_cast<double>(acc);
    }
    static T Finish(Acc acc, int64_t) { return static_cast<T>(acc); }
  };
  static float FinishFloat(double acc, int64_t) { return static_cast<float>(acc); }
};
// For float32, sums are relative to the first element: values may be large compared with their
// differences, and a normalisation built from means needs those differences.
struct Mean : Sum {
  static constexpr FloatFold kFold = FloatFold::kSumFrom;
  template <typename T>
  struct For : Sum::For<T> {
    static T Finish(SumOf<T> acc, int64_t count) {
      if constexpr (std::is_integral_v<T>) {
        return count == 0 ? T{0} : static_cast<T>(static_cast<Wide<T>>(acc) / count);
      } else {
        return static_cast<T>(acc / static_cast<double>(count));
      }
    }
  };
  static float FinishFloat(double acc, int64_t count, double from = 0) {
    return static_cast<float>(from + acc / static_cast<double>(count));
  }
};
struct LogSum : Sum {
  template <typename T>
  struct For : Sum::For<T> {
    static T Finish(SumOf<T> acc, int64_t) {
      return SaturateCast<T>(std::log(Sum::For<T>::Value(acc)));
    }
  };
  static float FinishFloat(double acc, int64_t) { return static_cast<float>(std::log(acc)); }
};
struct L1 : Sum {
  static constexpr FloatFold kFold = FloatFold::kSumAbs;
  template <typename T>
  struct For : Sum::For<T> {
    static void Add(SumOf<T>& acc, T x) {
      if constexpr (std::is_floating_point_v<T>) {
        acc += std::abs(x);
      } else {
        acc += x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
      }
    }
  };
};
struct SumSquare : Sum {
  static constexpr FloatFold kFold = FloatFold::kSumSquare;
  template <typename T>
  struct For : Sum::For<T> {
    static void Add(SumOf<T>& acc, T x) {
      acc += static_cast<SumOf<T>>(x) * static_cast<SumOf<T>>(x);
    }
  };
};
struct L2 : SumSquare {
  template <typename T>
  struct For : SumSquare::For<T> {
    static T Finish(SumOf<T> acc, int64_t) {
      return SaturateCast<T>(std::sqrt(static_cast<double>(acc)));
    }
  };
  static float FinishFloat(double acc, int64_t) { return static_cast<float>(std::sqrt(acc)); }
};
struct Prod {
  template <typename T>
  struct For {
    using Acc = SumOf<T>;
    static constexpr Acc kStart = 1;
    static void Add(Acc& acc, T x) { acc *= static_cast<Acc>(x); }
    static T Finish(Acc acc, int64_t) { return static_cast<T>(acc); }
  };
};
template <typename T>
constexpr T kLowest = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                  : std::numeric_limits<T>::lowest();
template <typename T>
constexpr T kHighest = std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity()
                                                   : std::numeric_limits<T>::max();
struct Max {
  static constexpr FloatFold kFold = FloatFold::kMax;
  template <typename T>
  struct For {
    using Acc = T;
    static constexpr T kStart = kLowest<T>;
    static void Add(T& acc, T x) { acc = Larger(x, acc); }
    static T Finish(T acc, int64_t) { return acc; }
  };
  static float FinishFloat(double acc, int64_t) { return static_cast<float>(acc); }
};
struct Min {
  static constexpr FloatFold kFold = FloatFold::kMin;
  template <typename T>
  struct For {
    using Acc = T;
    static constexpr T kStart = kHighest<T>;
    static void Add(T& acc, T x) { acc = Smaller(x, acc); }
    static T Finish(T acc, int64_t) { return acc; }
  };
  static float FinishFloat(double acc, int64_t) { return static_cast<float>(acc); }
};
// Σ exp(x − max) and max, rescaled when a larger element comes.
struct LogSumExpState {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
};
struct LogSumExp {
  static constexpr FloatFold kFold = FloatFold::kSumExp;
  template <typename T>
  struct For {
    using Acc = LogSumExpState;
    static constexpr LogSumExpState kStart = {};
    static void Add(LogSumExpState& acc, T element) {
      const auto x = static_cast<double>(element);
      if (x > acc.max) {
        acc.sum = acc.sum * std::exp(acc.max - x) + 1;
        acc.max = x;
      } else if (x == acc.max) {
        acc.sum += std::isinf(x) && x < 0 ? 0 : 1;
      } else {
        acc.sum += std::exp(x - acc.max);
      }
    }
    static T Finish(const LogSumExpState& acc, int64_t) {
      if (std::isinf(acc.max) && acc.sum == acc.sum) return SaturateCast<T>(acc.max);
      return SaturateCast<T>(acc.max + std::log(acc.sum));
    }
  };
};

// Work is divided into units: one output if the innermost run is folded, else up to kFoldColumns
// adjacent outputs.
int64_t Units(const ReducePlan& plan) {
  if (plan.inner_folded) return plan.outer;
  return plan.outer * ((plan.inner + kFoldColumns - 1) / kFoldColumns);
}

// A unit of columns: the addresses it reads and writes.
struct Columns {
  int64_t in, out, count;
};
Columns UnitColumns(const ReducePlan& plan, int64_t unit) {
  const int64_t per_group = (plan.inner + kFoldColumns - 1) / kFoldColumns;
  const int64_t first = unit % per_group * kFoldColumns;
  return {plan.OuterOffset(unit / per_group) + first, unit / per_group * plan.inner + first,
          std::min(kFoldColumns, plan.inner - first)};
}

using UnitsFn = void (*)(const ReducePlan& plan, const void* in, void* out, int64_t first,
                         int64_t last);

template <typename Op, typename T>
void RunUnits(const ReducePlan& plan, const void* in, void* out, int64_t first, int64_t last) {
  using F = typename Op::template For<T>;
  const T* x = static_cast<const T*>(in);
  T* y = static_cast<T*>(out);
  for (int64_t unit = first; unit < last; ++unit) {
    if (plan.inner_folded) {
      auto acc = F::kStart;
      const int64_t base = plan.OuterOffset(unit);
      plan.ForEachFolded([&](int64_t offset, int64_t rows, int64_t stride) {
        for (int64_t r = 0; r < rows; ++r) {
          const T* p = x + base + offset + r * stride;
          for (int64_t i = 0; i < plan.inner; ++i) F::Add(acc, p[i]);
        }
      });
      y[unit] = F::Finish(acc, plan.fold_count);
    } else {
      const Columns cols = UnitColumns(plan, unit);
      typename F::Acc acc[kFoldColumns];
      std::fill_n(acc, cols.count, F::kStart);
      plan.ForEachFolded([&](int64_t offset, int64_t rows, int64_t stride) {
        for (int64_t r = 0; r < rows; ++r) {
          const T* p = x + cols.in + offset + r * stride;
          for (int64_t c = 0; c < cols.count; ++c) F::Add(acc[c], p[c]);
        }
      });
      for (int64_t c = 0; c < cols.count; ++c) {
        y[cols.out + c] = F::Finish(acc[c], plan.fold_count);
      }
    }
  }
}

// Folds one unit of float32 into acc[0..count).
void FoldUnit(const ReducePlan& plan, const FoldFns& fold, const float* x, int64_t count,
              const float* shift, double* acc) {
  std::fill_n(acc, count, fold.start);
  plan.ForEachFolded([&](int64_t offset, int64_t rows, int64_t stride) {
    const float* p = x + offset;
    if (!plan.inner_folded) {
      fold.columns(p, rows, stride, count, shift, acc);
      return;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const double part = fold.row(p + r * stride, plan.inner, shift != nullptr ? *shift : 0.0f);
      acc[0] = std::isinf(fold.start)
                   ? (fold.start < 0 ? Larger(part, acc[0]) : Smaller(part, acc[0]))
                   : acc[0] + part;
    }
  });
}

// The value that the mean of elements starting with x is summed relative to. x may be too large for
// differences.
float MeanFrom(float x) {
  constexpr float kMost = 1e30f;
  return std::abs(x) <= kMost ? x : 0.0f;
}

template <typename Op>
void RunFloatUnits(const ReducePlan& plan, const void* in, void* out, int64_t first, int64_t last) {
  const FoldFns fold = FindFold(Op::kFold);
  const FoldFns max = FindFold(FloatFold::kMax);
  // One run of folded elements, with outputs in the order of the runs: the common case.
  if constexpr (!std::is_same_v<Op, LogSumExp>) {
    if (plan.inner_folded && plan.folded_dims.empty() && plan.kept_dims.size() <= 1) {
      const float* x = static_cast<const float*>(in);
      float* y = static_cast<float*>(out);
      for (int64_t unit = first; unit < last; ++unit) {
        const float* row = x + unit * plan.inner;
        if (plan.inner == 0) {
          y[unit] = Op::FinishFloat(fold.start, 0);
        } else if constexpr (std::is_same_v<Op, Mean>) {
          const float from = MeanFrom(row[0]);
          y[unit] = Op::FinishFloat(fold.row(row, plan.inner, from), plan.fold_count, from);
        } else {
          y[unit] = Op::FinishFloat(fold.row(row, plan.inner, 0), plan.fold_count);
        }
      }
      return;
    }
  }
  for (int64_t unit = first; unit < last; ++unit) {
    const Columns cols =
        plan.inner_folded ? Columns{plan.OuterOffset(unit), unit, 1} : UnitColumns(plan, unit);
    const float* x = static_cast<const float*>(in) + cols.in;
    float* y = static_cast<float*>(out) + cols.out;
    double acc[kFoldColumns];
    if constexpr (std::is_same_v<Op, LogSumExp>) {
      float shift[kFoldColumns];
      FoldUnit(plan, max, x, cols.count, nullptr, acc);
      for (int64_t c = 0; c < cols.count; ++c) shift[c] = static_cast<float>(acc[c]);
      // A column of −∞, or with +∞, is its own result: only finite ones are shifted.
      for (int64_t c = 0; c < cols.count; ++c) {
        if (std::isinf(shift[c])) shift[c] = 0.0f;
      }
      FoldUnit(plan, fold, x, cols.count, shift, acc);
      for (int64_t c = 0; c < cols.count; ++c) {
        y[c] = static_cast<float>(shift[c] + std::log(acc[c]));
      }
    } else if constexpr (std::is_same_v<Op, Mean>) {
      float from[kFoldColumns] = {};
      if (plan.fold_count > 0) std::transform(x, x + cols.count, from, MeanFrom);
      FoldUnit(plan, fold, x, cols.count, from, acc);
      for (int64_t c = 0; c < cols.count; ++c) {
        y[c] = Op::FinishFloat(acc[c], plan.fold_count, from[c]);
      }
    } else {
      FoldUnit(plan, fold, x, cols.count, nullptr, acc);
      for (int64_t c = 0; c < cols.count; ++c) y[c] = Op::FinishFloat(acc[c], plan.fold_count);
    }
  }
}

template <typename Op>
StatusOr<UnitsFn> FindUnits(DType dtype) {
  if constexpr (requires { Op::kFold; }) {
    if (dtype == DType::kFloat) return UnitsFn{RunFloatUnits<Op>};
  }
  constexpr bool kIsExtremum = std::is_same_v<Op, Max> || std::is_same_v<Op, Min>;
  const auto find = []<typename T>() { return StatusOr<UnitsFn>(RunUnits<Op, T>); };
  if constexpr (kIsExtremum) {
    return DispatchTypes<double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                         uint64_t>(dtype == DType::kBool ? DType::kUInt8 : dtype, find);
  } else {
    return DispatchTypes<float, double, int32_t, int64_t, uint32_t, uint64_t>(dtype, find);
  }
}

constexpr int64_t kMinReducedToShare = int64_t{1} << 16;

void RunPlan(const ReducePlan& plan, UnitsFn run, const KernelArgs& args) {
  if (plan.size == 0) return;
  ForRanges(args.team, Units(plan), plan.size * plan.fold_count, kMinReducedToShare,
            [&](int64_t first, int64_t last) {
              run(plan, args.inputs[0], args.outputs[0], first, last);
            });
}

template <typename Op>
StatusOr<std::unique_ptr<Kernel>> CompileReduce(const CompileContext& context) {
  const TensorDesc& input = context.inputs[0];
  const bool has_axes = context.has_input(1);
  const int64_t num_axes = has_axes ? context.inputs[1].size() : 0;
  CHAIRLIFT_ASSIGN_OR_RETURN(UnitsFn run, FindUnits<Op>(input.dtype));
  if (has_axes && context.constant(1) == nullptr) {
    // Axes computed by a node: the plan is made at run time.
    return MakeKernel([run, num_axes, shape = input.shape,
                       attributes = context.attributes](const KernelArgs& args) {
      const std::span<const int64_t> values(static_cast<const int64_t*>(args.inputs[1]),
                                            static_cast<size_t>(num_axes));
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                                 ReduceAxes(attributes, values, shape.rank()));
      RunPlan(MakeReducePlan(shape, axes), run, args);
      return absl::OkStatus();
    });
  }
  std::optional<std::span<const int64_t>> values;
  if (has_axes) values = context.constant(1)->values<int64_t>();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                             ReduceAxes(context.attributes, values, input.shape.rank()));
  return MakeKernel([run, plan = MakeReducePlan(input.shape, axes)](const KernelArgs& args) {
    RunPlan(plan, run, args);
    return absl::OkStatus();
  });
}

StatusOr<AxisMap> ReducedAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  std::optional<std::vector<int64_t>> values;
  if (context.has_input(1)) {
    values = context.known_elements(1);
    if (!values) return Unimplemented("its axes are not known");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                             ReduceAxes(context.attributes(), values, rank));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels = LabelsWithout(rank, axes);
  map.outputs[0] = map.inputs[0];
  const bool keep = context.attributes().Int("keepdims", 1) != 0;
  if (!keep) std::erase(map.outputs[0].labels, AxisMap::kNone);
  return map;
}

template <typename Op>
void Register(OperatorRegistry& registry, const char* name) {
  constexpr TypeSet kSums =
      kFloatTypes | TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64};
  const bool extremum = std::is_same_v<Op, Max> || std::is_same_v<Op, Min>;
  registry.Add({.name = name,
                .max_inputs = 2,
                .input_types = {extremum ? kAllTypes : kSums, TypeSet{DType::kInt64}},
                .infer = InferReduce,
                .axes = ReducedAxes,
                .compile = CompileReduce<Op>});
}

}  // namespace

void RegisterReduce(OperatorRegistry& registry) {
  Register<Sum>(registry, "ReduceSum");
  Register<Mean>(registry, "ReduceMean");
  Register<Max>(registry, "ReduceMax");
  Register<Min>(registry, "ReduceMin");
  Register<Prod>(registry, "ReduceProd");
  Register<L1>(registry, "ReduceL1");
  Register<L2>(registry, "ReduceL2");
  Register<LogSum>(registry, "ReduceLogSum");
  Register<LogSumExp>(registry, "ReduceLogSumExp");
  Register<SumSquare>(registry, "ReduceSumSquare");
}

}  // namespace chairlift
