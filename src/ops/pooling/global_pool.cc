// GlobalAveragePool, GlobalMaxPool and GlobalLpPool: all spatial axes become one element.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/axis_map.h"
#include "ops/extrema.h"
#include "ops/pooling/pooling.h"

namespace chairlift {
namespace {

Status InferGlobalPool(InferContext& context) {
  SymbolicShape shape = context.shape(0);
  if (shape.has_rank()) {
    if (shape.rank() < 3) {
      return InvalidArgument("input {} needs a spatial axis", shape.ToString());
    }
    for (int i = 2; i < shape.rank(); ++i) shape[i] = 1;
  }
  if (context.attributes().Int("p", 2) < 1) return InvalidArgument("p must be at least 1");
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

template <typename T>
T PoolPlane(PoolKind kind, int64_t p, const T* in, int64_t size) {
  if (kind == PoolKind::kMax) {
    T largest = size == 0 ? std::numeric_limits<T>::lowest() : in[0];
    for (int64_t i = 1; i < size; ++i) largest = Larger(in[i], largest);
    return largest;
  }
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += kind == PoolKind::kAverage
               ? static_cast<double>(in[i])
               : std::pow(std::abs(static_cast<double>(in[i])), static_cast<double>(p));
  }
  if (kind == PoolKind::kAverage) {
    return static_cast<T>(sum / static_cast<double>(std::max<int64_t>(size, 1)));
  }
  return static_cast<T>(std::pow(sum, 1.0 / static_cast<double>(p)));
}

template <PoolKind kind>
StatusOr<std::unique_ptr<Kernel>> CompileGlobalPool(const CompileContext& context) {
  const TensorDesc& x = context.inputs[0];
  if (x.layout != context.outputs[0].layout) return Internal("pooling cannot change the layout");
  const int64_t size = x.shape.NumElements(2, x.shape.rank());
  const int block = x.layout == Layout::kChannelBlocked ? ChannelBlock() : 1;
  const int64_t planes = x.shape[0] * (block > 1 ? ChannelBlocks(x.shape[1]) : x.shape[1]);
  const int parts =
      x.size() < 50000 ? 1 : static_cast<int>(std::clamp<int64_t>(planes, 1, context.width));
  if (x.dtype == DType::kFloat && kind != PoolKind::kLp) {
    return MakeKernel([=](const KernelArgs& args) {
      args.team.For(parts, [&](int part, int) {
        GlobalPoolFloat(kind, size, block, static_cast<const float*>(args.inputs[0]),
                        static_cast<float*>(args.outputs[0]), planes * part / parts,
                        planes * (part + 1) / parts);
      });
      return absl::OkStatus();
    });
  }
  const int64_t p = context.attributes.Int("p", 2);
  return DispatchFloat(x.dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
    return MakeKernel([=](const KernelArgs& args) {
      args.team.For(parts, [&](int part, int) {
        for (int64_t i = planes * part / parts; i < planes * (part + 1) / parts; ++i) {
          static_cast<T*>(args.outputs[0])[i] =
              PoolPlane(kind, p, static_cast<const T*>(args.inputs[0]) + i * size, size);
        }
      });
      return absl::OkStatus();
    });
  });
}

OperatorDef GlobalPoolDef(const char* name) {
  OperatorDef def;
  def.name = name;
  def.input_types = {kFloatTypes};
  def.infer = InferGlobalPool;
  def.axes = FirstAxis<0>;
  return def;
}

}  // namespace

void RegisterGlobalPool(OperatorRegistry& registry) {
  OperatorDef average = GlobalPoolDef("GlobalAveragePool");
  average.compile = CompileGlobalPool<PoolKind::kAverage>;
  average.blocked_form = PoolBlockedForm;
  registry.Add(std::move(average));

  OperatorDef max = GlobalPoolDef("GlobalMaxPool");
  max.compile = CompileGlobalPool<PoolKind::kMax>;
  max.blocked_form = PoolBlockedForm;
  registry.Add(std::move(max));

  OperatorDef lp = GlobalPoolDef("GlobalLpPool");
  lp.compile = CompileGlobalPool<PoolKind::kLp>;
  registry.Add(std::move(lp));
}

}  // namespace chairlift
