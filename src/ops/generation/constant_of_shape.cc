// ConstantOfShape: one value repeated to a shape given as data.
#include <algorithm>
#include <cstring>

#include "ops/axes.h"
#include "ops/generation/generation.h"

namespace chairlift {
namespace {

// One element; float 0 if the attribute is absent.
StatusOr<Tensor> FillValue(const Attributes& attributes) {
  const auto* value = attributes.Find<Tensor>("value");
  if (value == nullptr) return Tensor::Scalar(0.0f);
  if (value->size() != 1) {
    return InvalidArgument("attribute value has {} elements, not 1", value->size());
  }
  return *value;
}

Status InferConstantOfShape(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor value, FillValue(context.attributes()));
  const SymbolicShape& given = context.shape(0);
  if (given.has_rank() && given.rank() != 1) {
    return InvalidArgument("the shape is given as a tensor of shape {}, not of one dimension",
                           given.ToString());
  }
  if (const auto known = context.known_elements(0)) {
    for (int64_t d : *known) {
      if (d < 0) return InvalidArgument("the shape has dimension {}", d);
    }
  }
  SymbolicShape shape;
  if (auto dims = ShapeElements(context, 0)) {
    if (dims->size() > kMaxRank) return InvalidArgument("the shape has rank {}", dims->size());
    shape = SymbolicShape(*std::move(dims));
  } else if (given.has_rank() && given[0].known()) {
    if (given[0].value() > kMaxRank) {
      return InvalidArgument("the shape has rank {}", given[0].value());
    }
    shape = SymbolicShape::OfRank(static_cast<int>(given[0].value()));
  }
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, value.dtype(), shape));
  constexpr int64_t kMostElements = 64;
  if (value.dtype() == DType::kInt64 && shape.concrete() && shape.rank() <= 1 &&
      shape.ToShape().NumElements() <= kMostElements) {
    context.set_output_elements(
        0, std::vector<Dim>(shape.ToShape().NumElements(), Dim(value.values<int64_t>()[0])));
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileConstantOfShape(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor value, FillValue(context.attributes));
  return DispatchWidth(value.dtype(), [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
    T fill;
    std::memcpy(&fill, value.raw(), sizeof(T));
    return MakeKernel([fill, count = context.outputs[0].size()](const KernelArgs& args) {
      std::fill_n(static_cast<T*>(args.outputs[0]), count, fill);
      return absl::OkStatus();
    });
  });
}

}  // namespace

void RegisterConstantOfShape(OperatorRegistry& registry) {
  registry.Add({.name = "ConstantOfShape",
                .min_opset = 9,
                .input_types = {TypeSet{DType::kInt64}},
                .infer = InferConstantOfShape,
                .compile = CompileConstantOfShape,
                .native_half = true});
}

}  // namespace chairlift
