// TensorScatter(cache, update, write_indices?): writes each sample's update into its part of a
// cache along `axis`, starting at write_indices[sample] (default 0). In mode "circular" the write
// wraps at the end; in mode "linear" writing past the end is an error.
#include <cstring>

#include "ops/attention/attention_operators.h"
#include "ops/axes.h"
#include "ops/axis_map.h"

namespace chairlift {
namespace {

Status InferTensorScatter(InferContext& context) {
  const std::string mode = context.attributes().String("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    return InvalidArgument("mode '{}' is not linear or circular", mode);
  }
  if (context.dtype(0) != context.dtype(1)) {
    return InvalidArgument("the update is {}, the cache {}", DTypeName(context.dtype(1)),
                           DTypeName(context.dtype(0)));
  }
  context.set_output(0, context.dtype(0), context.shape(0));
  return absl::OkStatus();
}

struct ScatterSizes {
  int64_t batch, outer;     // samples, and rows per sample before the axis
  int64_t places, written;  // along the axis, of cache and update
  int64_t inner;            // bytes per position
};

StatusOr<ScatterSizes> Measure(const CompileContext& context) {
  const Shape& cache = context.inputs[0].shape;
  const Shape& update = context.inputs[1].shape;
  if (cache.rank() == 0) return InvalidArgument("the cache is a scalar");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -2), cache.rank()));
  if (axis == 0) return InvalidArgument("axis 0 is the batch");
  bool fits = cache.rank() == update.rank();
  for (int i = 0; fits && i < cache.rank(); ++i) {
    fits = i == axis ? update[i] <= cache[i] : update[i] == cache[i];
  }
  if (!fits) {
    return InvalidArgument("an update {} does not fit a cache {} along axis {}", update.ToString(),
                           cache.ToString(), axis);
  }
  if (context.has_input(2) && !(context.inputs[2].shape == Shape{cache[0]})) {
    return InvalidArgument("write_indices is {}, not [{}]", context.inputs[2].shape.ToString(),
                           cache[0]);
  }
  return ScatterSizes{cache[0], cache.NumElements(1, axis), cache[axis], update[axis],
                      cache.NumElements(axis + 1, cache.rank()) *
                          static_cast<int64_t>(DTypeSize(context.inputs[0].dtype))};
}

StatusOr<std::unique_ptr<Kernel>> CompileTensorScatter(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ScatterSizes sizes, Measure(context));
  const bool circular = context.attributes.String("mode", "linear") == "circular";
  return MakeKernel([=](const KernelArgs& args) -> Status {
    const auto& [batch, outer, places, written, inner] = sizes;
    const auto* cache = static_cast<const std::byte*>(args.inputs[0]);
    const auto* update = static_cast<const std::byte*>(args.inputs[1]);
    const auto* indices =
        args.inputs.size() > 2 ? static_cast<const int64_t*>(args.inputs[2]) : nullptr;
    auto* out = static_cast<std::byte*>(args.outputs[0]);
    for (int64_t b = 0; indices != nullptr && b < batch; ++b) {
      const bool fits = indices[b] >= 0 && (circular || indices[b] <= places - written);
      if (!fits) {
        return InvalidArgument("{} places written from {} on do not fit a cache of {}", written,
                               indices[b], places);
      }
    }
    const int64_t bytes = batch * outer * places * inner;
    if (out != cache && bytes > 0) std::memcpy(out, cache, static_cast<size_t>(bytes));
    if (inner == 0 || places == 0) return absl::OkStatus();
    for (int64_t row = 0; row < batch * outer; ++row) {
      const int64_t start = indices == nullptr ? 0 : indices[row / outer] % places;
      for (int64_t i = 0; i < written; ++i) {
        const int64_t place = (start + i) % places;
        std::memcpy(out + (row * places + place) * inner, update + (row * written + i) * inner,
                    static_cast<size_t>(inner));
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterTensorScatter(OperatorRegistry& registry) {
  registry.Add({.name = "TensorScatter",
                .min_opset = 24,
                .min_inputs = 2,
                .max_inputs = 3,
                .input_types = {kAllTypes, kAllTypes, TypeSet{DType::kInt64}},
                .infer = InferTensorScatter,
                .axes = FirstAxis<0, 1, 2>,
                .compile = CompileTensorScatter,
                .native_half = true});
}

}  // namespace chairlift
