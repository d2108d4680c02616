// MaxPool, AveragePool and LpPool.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "ops/axis_map.h"
#include "ops/pooling/pooling.h"

namespace chairlift {
namespace {

Status InferPool(InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  SymbolicShape out;
  if (x.has_rank()) {
    if (x.rank() < 3 || x.rank() > 5) {
      return InvalidArgument("input {} must have one to three spatial axes", x.ToString());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Window window,
                               Window::Parse(context.attributes(), x.rank() - 2, {}));
    out = x;
    for (int i = 0; i < window.rank(); ++i) {
      if (window.pads_begin[i] >= window.Extent(i) || window.pads_end[i] >= window.Extent(i)) {
        return InvalidArgument("pads must be smaller than the window of {}", window.Extent(i));
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(out[i + 2], window.OutputDim(i, x[i + 2]));
    }
  }
  if (const int64_t p = context.attributes().Int("p", 2); p < 1) {
    return InvalidArgument("attribute p is {}; it must be at least 1", p);
  }
  if (context.num_outputs() > 1) context.set_output(1, DType::kInt64, out);
  context.set_output(0, context.dtype(0), std::move(out));
  return absl::OkStatus();
}

// How windows of elements of T are folded: start, add an element, end.
template <typename T>
struct MaxFold {
  T value = std::numeric_limits<T>::lowest();
  int64_t index = -1;
  void Take(T x, int64_t at) {
    // The first of several NaNs.
    if (x > value || index < 0 || (x != x && value == value)) {
      value = x;
      index = at;
    }
  }
};

template <typename T>
struct SumFold {
  T value = 0;
  void Take(T x, int64_t) { value += x; }
};

template <typename T>
struct PowerFold {
  explicit PowerFold(int64_t p) : p(p) {}
  T value = 0;
  int64_t p;
  void Take(T x, int64_t) {
    const T size = std::abs(x);
    value += p == 2 ? size * size : p == 1 ? size : std::pow(size, static_cast<T>(p));
  }
  T Root() const {
    return p == 2 ? std::sqrt(value) : p == 1 ? value : std::pow(value, T{1} / static_cast<T>(p));
  }
};

// Folds every window of one plane; emit(output index, fold, taps inside, taps with padding).
template <typename T, typename Fold, typename Emit>
void FoldPlane(const PoolGeometry& g, const T* in, const Fold& initial, const Emit& emit) {
  int64_t o = 0;
  for (const Taps& tz : g.taps[0]) {
    for (const Taps& ty : g.taps[1]) {
      for (const Taps& tx : g.taps[2]) {
        Fold fold = initial;
        for (int64_t a = 0; a < tz.count; ++a) {
          const int64_t z = tz.first + a * g.dilation[0];
          for (int64_t b = 0; b < ty.count; ++b) {
            const int64_t row = (z * g.in[1] + ty.first + b * g.dilation[1]) * g.in[2];
            for (int64_t c = 0; c < tx.count; ++c) {
              const int64_t at = row + tx.first + c * g.dilation[2];
              fold.Take(in[at], at);
            }
          }
        }
        emit(o++, fold, tz.count * ty.count * tx.count,
             tz.with_padding * ty.with_padding * tx.with_padding);
      }
    }
  }
}

// body(first plane, last plane, part), distributed over the team.
template <typename Body>
void ForPlanes(const KernelArgs& args, int width, double work, int64_t planes, const Body& body) {
  const int parts =
      work < 5e4 ? 1 : static_cast<int>(std::clamp<int64_t>(planes, 1, int64_t{width}));
  args.team.For(parts, [&](int part, int) {
    body(planes * part / parts, planes * (part + 1) / parts, part);
  });
}

struct PoolPlan {
  PoolGeometry geometry;
  PoolKind kind = PoolKind::kMax;
  int64_t p = 2;
  bool column_major = false;  // order of the indices
  int width = 1;
};

// The flat index of `at` within its plane, with the first spatial axis innermost.
int64_t ColumnMajor(const PoolGeometry& g, int64_t at) {
  const int64_t x = at % g.in[2], y = at / g.in[2] % g.in[1], z = at / g.in[2] / g.in[1];
  return (x * g.in[1] + y) * g.in[0] + z;
}

template <typename T>
std::unique_ptr<Kernel> MaxPoolKernel(PoolPlan plan) {
  return MakeKernel([plan = std::move(plan)](const KernelArgs& args) {
    const PoolGeometry& g = plan.geometry;
    auto* indices = args.outputs.size() > 1 ? static_cast<int64_t*>(args.outputs[1]) : nullptr;
    ForPlanes(args, plan.width, g.Work(), g.planes, [&](int64_t first, int64_t last, int) {
      for (int64_t p = first; p < last; ++p) {
        T* out = static_cast<T*>(args.outputs[0]) + p * g.OutSize();
        FoldPlane(g, static_cast<const T*>(args.inputs[0]) + p * g.InSize(), MaxFold<T>(),
                  [&](int64_t o, const MaxFold<T>& fold, int64_t, int64_t) {
                    out[o] = fold.value;
                    if (indices == nullptr) return;
                    indices[p * g.OutSize() + o] =
                        p * g.InSize() +
                        (plan.column_major ? ColumnMajor(g, fold.index) : fold.index);
                  });
      }
    });
    return absl::OkStatus();
  });
}

template <typename T>
std::unique_ptr<Kernel> FloatPoolKernel(PoolPlan plan) {
  return MakeKernel([plan = std::move(plan)](const KernelArgs& args) {
    const PoolGeometry& g = plan.geometry;
    ForPlanes(args, plan.width, g.Work(), g.planes, [&](int64_t first, int64_t last, int) {
      for (int64_t p = first; p < last; ++p) {
        const T* in = static_cast<const T*>(args.inputs[0]) + p * g.InSize();
        T* out = static_cast<T*>(args.outputs[0]) + p * g.OutSize();
        if (plan.kind == PoolKind::kLp) {
          FoldPlane(
              g, in, PowerFold<T>(plan.p),
              [&](int64_t o, const PowerFold<T>& fold, int64_t, int64_t) { out[o] = fold.Root(); });
          continue;
        }
        FoldPlane(g, in, SumFold<T>(),
                  [&](int64_t o, const SumFold<T>& fold, int64_t inside, int64_t padded) {
                    const int64_t count = plan.kind == PoolKind::kAverage ? inside : padded;
                    out[o] = fold.value / static_cast<T>(std::max<int64_t>(count, 1));
                  });
      }
    });
    return absl::OkStatus();
  });
}

std::unique_ptr<Kernel> BlockedPoolKernel(PoolPlan plan) {
  const int block = ChannelBlock();
  const int64_t row = plan.geometry.FoldsRows() ? plan.geometry.in[2] * block : 0;
  const size_t scratch = static_cast<size_t>(row * plan.width) * sizeof(float);
  return MakeKernel(
      [plan = std::move(plan), block, row](const KernelArgs& args) {
        const PoolGeometry& g = plan.geometry;
        ForPlanes(args, plan.width, g.Work(), g.planes / block,
                  [&](int64_t first, int64_t last, int part) {
                    PoolBlocked(plan.kind, g, block, static_cast<const float*>(args.inputs[0]),
                                static_cast<float*>(args.outputs[0]), first, last,
                                static_cast<float*>(args.scratch) + part * row);
                  });
        return absl::OkStatus();
      },
      scratch);
}

StatusOr<PoolPlan> PlanPool(const CompileContext& context, PoolKind kind) {
  const Shape& x = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Window window,
                             Window::Parse(context.attributes, x.rank() - 2, {}));
  PoolPlan plan;
  // Nothing to compute, however large the other axes.
  if (context.outputs[0].size() > 0) {
    const Shape stored = context.inputs[0].StoredShape();
    const bool blocked = stored.rank() > x.rank();
    plan.geometry =
        PoolGeometry::Make(window, stored[0] * stored[1] * (blocked ? ChannelBlock() : 1), x,
                           context.outputs[0].shape);
  }
  plan.kind = kind;
  plan.p = context.attributes.Int("p", 2);
  plan.column_major = context.attributes.Int("storage_order", 0) != 0;
  plan.width = context.width;
  if (context.inputs[0].layout != context.outputs[0].layout) {
    return Internal("pooling cannot change the layout");
  }
  return plan;
}

StatusOr<std::unique_ptr<Kernel>> CompileMaxPool(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(PoolPlan plan, PlanPool(context, PoolKind::kMax));
  if (context.inputs[0].layout == Layout::kChannelBlocked) {
    return BlockedPoolKernel(std::move(plan));
  }
  return DispatchTypes<float, double, int8_t, uint8_t>(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MaxPoolKernel<T>(std::move(plan));
      });
}

StatusOr<std::unique_ptr<Kernel>> CompileFloatPool(const CompileContext& context, PoolKind kind) {
  CHAIRLIFT_ASSIGN_OR_RETURN(PoolPlan plan, PlanPool(context, kind));
  if (context.inputs[0].layout == Layout::kChannelBlocked) {
    return BlockedPoolKernel(std::move(plan));
  }
  return DispatchFloat(context.inputs[0].dtype,
                       [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
                         return FloatPoolKernel<T>(std::move(plan));
                       });
}

StatusOr<std::unique_ptr<Kernel>> CompileAveragePool(const CompileContext& context) {
  return CompileFloatPool(context, context.attributes.Int("count_include_pad", 0) != 0
                                       ? PoolKind::kAverageWithPadding
                                       : PoolKind::kAverage);
}

StatusOr<std::unique_ptr<Kernel>> CompileLpPool(const CompileContext& context) {
  return CompileFloatPool(context, PoolKind::kLp);
}

// Indices count from the start of the whole tensor.
StatusOr<AxisMap> MaxPoolAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, FirstAxis<0>(context));
  if (map.outputs.size() > 1) map.outputs[1] = {};
  return map;
}

}  // namespace

void RegisterPool(OperatorRegistry& registry) {
  OperatorDef max;
  max.name = "MaxPool";
  max.max_outputs = 2;
  max.input_types = {kFloatTypes | TypeSet{DType::kInt8, DType::kUInt8}};
  max.infer = InferPool;
  max.axes = MaxPoolAxes;
  max.compile = CompileMaxPool;
  max.blocked_form = PoolBlockedForm;
  registry.Add(std::move(max));

  OperatorDef average;
  average.name = "AveragePool";
  average.input_types = {kFloatTypes};
  average.infer = InferPool;
  average.axes = FirstAxis<0>;
  average.compile = CompileAveragePool;
  average.blocked_form = PoolBlockedForm;
  registry.Add(std::move(average));

  OperatorDef lp;
  lp.name = "LpPool";
  lp.input_types = {kFloatTypes};
  lp.infer = InferPool;
  lp.axes = FirstAxis<0>;
  lp.compile = CompileLpPool;
  registry.Add(std::move(lp));
}

}  // namespace chairlift
