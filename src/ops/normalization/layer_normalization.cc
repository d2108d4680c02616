// LayerNormalization and RMSNormalization over the trailing dimensions, and
// chairlift::SkipLayerNorm, the first for a sum.
//
// chairlift::SkipLayerNorm(x, residual, bias?, scale, shift?) -> (y, sum?): s = x + residual +
// bias, y = LayerNormalization(s) over the last dimension; attribute epsilon. x and residual have
// the same shape [..., n]; bias, scale and shift are [n].
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/elementwise/element_loops.h"
#include "ops/normalization/normalization.h"
#include "ops/normalization/rows_simd.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

constexpr float kDefaultEpsilon = 1e-5f;

Status InferLayerNorm(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  // 0 leaves it open in which type the statistics are computed.
  if (const int64_t stash = context.attributes().Int("stash_type", 1); stash != 0 && stash != 1) {
    return Unimplemented("attribute stash_type is {}; it must be 0 or 1 (float32)", stash);
  }
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (context.has_input(i)) CHAIRLIFT_RETURN_IF_ERROR(CheckSameType(context, i));
  }
  context.set_output(0, context.dtype(0), shape);
  SymbolicShape statistics = shape;
  if (shape.has_rank()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                               NormalizeAxis(context.attributes().Int("axis", -1), shape.rank()));
    // Scale and bias broadcast to the whole input, not only to the normalised part.
    for (int i = 1; i < 3; ++i) {
      if (!context.has_input(i)) continue;
      const SymbolicShape both[] = {shape, context.shape(i)};
      CHAIRLIFT_ASSIGN_OR_RETURN(const SymbolicShape joint, BroadcastShapes(both));
      bool grows = joint.has_rank() && joint.rank() != shape.rank();
      for (int k = 0; joint.has_rank() && !grows && k < joint.rank(); ++k) {
        grows = joint[k].known() && shape[k].known() && joint[k].value() != shape[k].value();
      }
      if (grows) {
        return InvalidArgument("input {} of shape {} does not broadcast to {}", i,
                               context.shape(i).ToString(), shape.ToString());
      }
    }
    for (int k = axis; k < shape.rank(); ++k) statistics[k] = 1;
  }
  for (int i = 1; i < context.num_outputs(); ++i) {
    context.set_output(i, DType::kFloat, statistics);
  }
  return absl::OkStatus();
}

template <typename T>
struct CopyOp {
  static T Apply(T x, const ElementParams&) { return x; }
};

// A scale or bias for the rows of x as n elements per row: given that way, or expanded.
template <typename T>
class Spread {
 public:
  // `axis`: the first normalised axis.
  static StatusOr<Spread> Make(const TensorDesc& given, const Shape& x, int axis) {
    Spread spread;
    if (!given.present()) return spread;
    const int rank = given.shape.rank();
    const int inner_rank = std::min(rank, x.rank() - axis);
    const Shape inner(given.shape.dims().last(static_cast<size_t>(inner_rank)));
    const Shape normalised(x.dims().subspan(static_cast<size_t>(axis)));
    if (inner.NumElements() != normalised.NumElements()) {
      const TensorDesc from{given.dtype, inner};
      CHAIRLIFT_ASSIGN_OR_RETURN(spread.loop_,
                                 ElementLoop::Make({&from, 1}, {given.dtype, normalised},
                                                   UnaryBlock<CopyOp<T>, T, T>, {}));
    }
    int64_t stride = inner.NumElements();
    for (int i = rank - inner_rank - 1, k = axis - 1; i >= 0; --i, --k) {
      spread.axes_.push_back({x[k], given.shape[i] == 1 ? 0 : stride});
      spread.varies_ = spread.varies_ || given.shape[i] != 1;
      stride *= given.shape[i];
    }
    return spread;
  }
  // Whether rows have different elements.
  bool varies() const { return varies_; }
  const T* Get(const void* data, void* room, int64_t row) const {
    if (data == nullptr) return nullptr;
    const T* own = static_cast<const T*>(data);
    for (const Axis& axis : axes_) {
      own += row % axis.size * axis.stride;
      row /= axis.size;
    }
    if (!loop_) return own;
    SoloTeam solo;
    const void* from = own;
    loop_->Run({&from, 1}, room, solo);
    return static_cast<const T*>(room);
  }

 private:
  // An axis of x, and the stride of its entries in the scale.
  struct Axis {
    int64_t size, stride;
  };
  std::optional<ElementLoop> loop_;
  std::vector<Axis> axes_;  // before the normalised ones, last first
  bool varies_ = false;
};

struct RowSize {
  int64_t rows, n;
  bool centred = true;  // false: RMSNormalization
};

void RunDouble(const RowSize& size, const double* x, const double* scale, const double* bias,
               double epsilon, double* y, float* mean_out, float* inv_out) {
  const auto count = static_cast<double>(size.n);
  for (int64_t r = 0; r < size.rows; ++r, x += size.n, y += size.n) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; size.centred && i < size.n; ++i) mean += x[i];
    mean /= count;
    for (int64_t i = 0; i < size.n; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const double inv = 1.0 / std::sqrt(variance / count + epsilon);
    for (int64_t i = 0; i < size.n; ++i) {
      y[i] = (x[i] - mean) * inv * scale[i] + (bias != nullptr ? bias[i] : 0.0);
    }
    if (mean_out != nullptr) mean_out[r] = static_cast<float>(mean);
    if (inv_out != nullptr) inv_out[r] = static_cast<float>(inv);
  }
}

void RunFloat(const RowSize& size, const LayerNormRows& all, Team& team) {
  ForRanges(team, size.rows, size.rows * size.n, kMinNormalizedToShare,
            [&all, n = size.n, run = FindRowFns().layer_norm](int64_t first, int64_t last) {
              const auto at = [](auto* p, int64_t offset) { return p == nullptr ? p : p + offset; };
              LayerNormRows part = all;
              part.x += first * n;
              part.residual = at(part.residual, first * n);
              part.y += first * n;
              part.sum = at(part.sum, first * n);
              part.mean = at(part.mean, first);
              part.inv_std = at(part.inv_std, first);
              part.rows = last - first;
              run(part);
            });
}

template <typename T>
StatusOr<std::unique_ptr<Kernel>> CompileForLayerNormalization(const CompileContext& context,
                                                               bool centred) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const RowSize size{shape.NumElements(0, axis), shape.NumElements(axis, shape.rank()), centred};
  const float epsilon = context.attributes.Float("epsilon", kDefaultEpsilon);
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto scale, Spread<T>::Make(context.inputs[1], shape, axis));
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const auto bias,
      Spread<T>::Make(context.has_input(2) ? context.inputs[2] : TensorDesc{}, shape, axis));
  const auto run = [=](const KernelArgs& args) {
    const auto output = [&](size_t i, int64_t row) {
      float* const all = i < args.outputs.size() ? static_cast<float*>(args.outputs[i]) : nullptr;
      return all == nullptr ? nullptr : all + row;
    };
    T* room = static_cast<T*>(args.scratch);
    // All rows together if they have the same scale and bias.
    const int64_t step = scale.varies() || bias.varies() ? 1 : std::max<int64_t>(size.rows, 1);
    for (int64_t row = 0; row < size.rows; row += step) {
      const RowSize part{step, size.n, size.centred};
      const T* scales = scale.Get(args.inputs[1], room, row);
      const T* biases =
          bias.Get(args.inputs.size() > 2 ? args.inputs[2] : nullptr, room + size.n, row);
      const T* x = static_cast<const T*>(args.inputs[0]) + row * size.n;
      T* y = static_cast<T*>(args.outputs[0]) + row * size.n;
      if constexpr (std::is_same_v<T, float>) {
        RunFloat(part,
                 {x, nullptr, nullptr, scales, biases, y, nullptr, output(1, row), output(2, row),
                  part.rows, part.n, epsilon, part.centred},
                 args.team);
      } else {
        RunDouble(part, x, scales, biases, epsilon, y, output(1, row), output(2, row));
      }
    }
    return absl::OkStatus();
  };
  return MakeKernel(run, static_cast<size_t>(2 * size.n) * sizeof(T));
}

StatusOr<std::unique_ptr<Kernel>> CompileLayerNorm(const CompileContext& context) {
  return DispatchFloat(context.inputs[0].dtype, [&]<typename T>() {
    return CompileForLayerNormalization<T>(context, /*centred=*/true);
  });
}

// The result has the scale's type.
Status InferRmsNorm(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(InferLayerNorm(context));
  context.set_output(0, context.dtype(1), context.shape(0));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileRmsNorm(const CompileContext& context) {
  return DispatchFloat(context.inputs[0].dtype, [&]<typename T>() {
    return CompileForLayerNormalization<T>(context, /*centred=*/false);
  });
}

Status InferSkip(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  if (shape.has_rank() && shape.rank() == 0) return InvalidArgument("the input is a scalar");
  for (int i : {1, 3}) CHAIRLIFT_RETURN_IF_ERROR(CheckSameType(context, i));
  SymbolicShape merged = shape;
  const SymbolicShape& residual = context.shape(1);
  if (shape.has_rank() && residual.has_rank()) {
    bool same = shape.rank() == residual.rank();
    for (int k = 0; same && k < shape.rank(); ++k) {
      same = !shape[k].known() || !residual[k].known() || shape[k].value() == residual[k].value();
      merged[k] = MergeDims(shape[k], residual[k]);
    }
    if (!same) {
      return InvalidArgument("input and residual differ in shape: {} and {}", shape.ToString(),
                             residual.ToString());
    }
  }
  const Dim n = merged.has_rank() ? merged[merged.rank() - 1] : Dim::Unknown();
  for (int i : {2, 3, 4}) {
    if (context.has_input(i)) CHAIRLIFT_RETURN_IF_ERROR(CheckPerChannel(context, i, n));
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    context.set_output(i, context.dtype(0), merged);
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileSkip(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  const int64_t n = shape[shape.rank() - 1];
  const RowSize size{shape.NumElements(0, shape.rank() - 1), n};
  for (int i = 1; i < 5; ++i) {
    if (context.has_input(i) && context.inputs[i].size() != (i == 1 ? size.rows * n : n)) {
      return InvalidArgument("input {} has shape {}", i, context.inputs[i].shape.ToString());
    }
  }
  const float epsilon = context.attributes.Float("epsilon", kDefaultEpsilon);
  return MakeKernel([size, epsilon](const KernelArgs& args) {
    const auto input = [&](size_t i) {
      return i < args.inputs.size() ? static_cast<const float*>(args.inputs[i]) : nullptr;
    };
    auto* sum = args.outputs.size() > 1 ? static_cast<float*>(args.outputs[1]) : nullptr;
    RunFloat(
        size,
        {input(0), input(1), input(2), input(3), input(4), static_cast<float*>(args.outputs[0]),
         sum, nullptr, nullptr, size.rows, size.n, epsilon},
        args.team);
    return absl::OkStatus();
  });
}

// Over `axis` and all dimensions after it.
StatusOr<AxisMap> RowAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes().Int("axis", -1), rank));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels = LabelsWithout(axis, {});
  for (AxisMap::Operand& output : map.outputs) output = map.inputs[0];
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int own, KnownRank(context, i));
    AxisMap::Operand& scale = map.inputs[static_cast<size_t>(i)];
    for (int a = rank - own; a < axis; ++a) scale.labels.push_back(a);
    scale.broadcasts = true;
  }
  return map;
}

}  // namespace

void RegisterLayerNormalization(OperatorRegistry& registry) {
  registry.Add({.name = "LayerNormalization",
                .min_opset = 1,  // in ONNX since 17; ONNX Runtime writes it into older models
                .min_inputs = 2,
                .max_inputs = 3,
                .min_outputs = 1,
                .max_outputs = 3,
                .input_types = {kFloatTypes},
                .infer = InferLayerNorm,
                .axes = RowAxes,
                .compile = CompileLayerNorm,
                .in_place = true});
  registry.Add({.name = "RMSNormalization",
                .min_opset = 23,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kFloatTypes},
                .infer = InferRmsNorm,
                .axes = RowAxes,
                .compile = CompileRmsNorm,
                .in_place = true});
  registry.Add({.domain = "chairlift",
                .name = "SkipLayerNorm",
                .min_inputs = 2,  // then an optional one; InferSkip requires the scale
                .max_inputs = 5,
                .min_outputs = 1,
                .max_outputs = 2,
                .input_types = {kHalfTypes | TypeSet{DType::kFloat}},
                .infer = InferSkip,
                .compile = CompileSkip,
                .in_place = true});
}

}  // namespace chairlift
