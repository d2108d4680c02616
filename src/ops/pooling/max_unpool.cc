// MaxUnpool: puts values back to where MaxPool's indices say, with zeros elsewhere.
#include <cstring>
#include <utility>

#include "ops/pooling/pooling.h"

namespace chairlift {
namespace {

// Spatial sizes of the tensor before pooling, to which the indices refer.
StatusOr<std::vector<int64_t>> PooledFrom(const Attributes& attributes,
                                          std::span<const int64_t> spatial) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Window w,
                             Window::Parse(attributes, static_cast<int>(spatial.size()), {}));
  std::vector<int64_t> out;
  for (int i = 0; i < w.rank(); ++i) {
    out.push_back((spatial[i] - 1) * w.strides[i] + w.kernel[i] - w.pads_begin[i] - w.pads_end[i]);
    if (out.back() < 0) return InvalidArgument("spatial axis {} would be negative", i);
  }
  return out;
}

Status InferMaxUnpool(InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  if (context.dtype(1) != DType::kInt64) return InvalidArgument("indices must be int64");
  if (x.concrete() && context.shape(1).concrete() && !(x.ToShape() == context.shape(1).ToShape())) {
    return InvalidArgument("values {} and indices {} differ in shape", x.ToString(),
                           context.shape(1).ToString());
  }
  if (!x.has_rank()) {
    context.set_output(0, context.dtype(0), SymbolicShape());
    return absl::OkStatus();
  }
  if (x.rank() < 3) return InvalidArgument("input {} needs a spatial axis", x.ToString());
  SymbolicShape out = SymbolicShape::OfRank(x.rank());
  out[0] = x[0];
  out[1] = x[1];
  if (x.concrete()) {
    const Shape shape = x.ToShape();
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> spatial,
                               PooledFrom(context.attributes(), shape.dims().subspan(2)));
    for (int i = 2; i < x.rank(); ++i) out[i] = spatial[i - 2];
  }
  if (context.has_input(2)) {
    for (int i = 2; i < x.rank(); ++i) out[i] = Dim::Unknown();
    if (const auto wanted = context.known_elements(2); wanted.has_value()) {
      if (static_cast<int>(wanted->size()) != x.rank()) {
        return InvalidArgument("output_shape must have {} entries", x.rank());
      }
      for (int i = 2; i < x.rank(); ++i) {
        const int64_t dim = (*wanted)[i];
        if (dim < 0) return InvalidArgument("output_shape entry {} is negative", dim);
        out[i] = dim;
      }
    }
  }
  context.set_output(0, context.dtype(0), std::move(out));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileMaxUnpool(const CompileContext& context) {
  const Shape& x = context.inputs[0].shape;
  const Shape& y = context.outputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> from,
                             PooledFrom(context.attributes, x.dims().subspan(2)));
  Shape counted{x[0], x[1]};
  for (int64_t d : from) counted.Append(d);
  CHAIRLIFT_RETURN_IF_ERROR(counted.Checked(1).status());
  const int64_t count = x.NumElements(), size = DTypeSize(context.inputs[0].dtype);
  return MakeKernel([=](const KernelArgs& args) -> Status {
    auto* out = static_cast<char*>(args.outputs[0]);
    std::memset(out, 0, static_cast<size_t>(y.NumElements() * size));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = static_cast<const int64_t*>(args.inputs[1])[i];
      if (index < 0 || index >= counted.NumElements()) {
        return InvalidArgument("MaxUnpool: index {} is outside {}", index, counted.ToString());
      }
      int64_t rest = index, at = 0, stride = 1;
      for (int axis = y.rank() - 1; axis >= 0; --axis) {
        const int64_t coordinate = rest % counted[axis];
        rest /= counted[axis];
        if (coordinate >= y[axis]) {
          return InvalidArgument("MaxUnpool: index {} is outside the output {}", index,
                                 y.ToString());
        }
        at += coordinate * stride;
        stride *= y[axis];
      }
      std::memcpy(out + at * size, static_cast<const char*>(args.inputs[0]) + i * size,
                  static_cast<size_t>(size));
    }
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterMaxUnpool(OperatorRegistry& registry) {
  OperatorDef def;
  def.name = "MaxUnpool";
  def.min_inputs = 2;
  def.max_inputs = 3;
  def.input_types = {kFloatTypes, TypeSet{DType::kInt64}};
  def.infer = InferMaxUnpool;
  def.compile = CompileMaxUnpool;
  registry.Add(std::move(def));
}

}  // namespace chairlift
