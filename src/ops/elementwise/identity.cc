// Identity and Dropout at inference: copies bytes.
#include <algorithm>
#include <cstring>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"
#include "ops/hands_on.h"
#include "tensor/text_types.h"

namespace chairlift {

Status InferSameAsInput(InferContext& context) {
  if (!context.has_input(0)) return InvalidArgument("input 0 is missing");
  context.set_output(0, context.dtype(0), context.shape(0));
  return absl::OkStatus();
}

Status InferPassedOn(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(InferSameAsInput(context));
  if (auto elements = ShapeElements(context, 0))
    context.set_output_elements(0, *std::move(elements));
  return absl::OkStatus();
}

namespace {

Status InferDropout(InferContext& context) {
  if (!context.has_input(0)) return InvalidArgument("input 0 is missing");
  if (context.has_input(2)) {
    const Tensor* training = context.value(2);
    if (training == nullptr || training->dtype() != DType::kBool || training->size() != 1) {
      return Unimplemented("training_mode must be a constant: only inference is supported");
    }
    if (*training->data<bool>())
      return Unimplemented("training_mode is on: only inference is supported");
  }
  context.set_output(0, context.dtype(0), context.shape(0));
  if (context.num_outputs() > 1) context.set_output(1, DType::kBool, context.shape(0));
  return absl::OkStatus();
}

// Output 0 is input 0. A second output, the mask of kept elements, is all true.
StatusOr<std::unique_ptr<Kernel>> CompileCopy(const CompileContext& context) {
  const size_t bytes = context.inputs[0].byte_size();
  const size_t count = static_cast<size_t>(context.inputs[0].size());
  return MakeKernel([bytes, count](const KernelArgs& args) {
    if (args.outputs[0] != nullptr && args.outputs[0] != args.inputs[0] && bytes > 0) {
      std::memcpy(args.outputs[0], args.inputs[0], bytes);
    }
    if (args.outputs.size() > 1 && args.outputs[1] != nullptr) {
      std::fill_n(static_cast<bool*>(args.outputs[1]), count, true);
    }
    return absl::OkStatus();
  });
}

// In training mode the dropped elements are random.
StatusOr<AxisMap> DropoutAxes(const InferContext& context) {
  if (context.has_input(2)) {
    const Tensor* training = context.value(2);
    if (training == nullptr || training->dtype() != DType::kBool || training->size() != 1 ||
        training->data<bool>()[0]) {
      return Unimplemented("it is in training mode");
    }
  }
  return AxesWithout(context, {});
}

// If the mask is not requested.
int DropoutHandsOn(const Attributes&, std::span<const ValueInfo>,
                   std::span<const ValueInfo> outputs) {
  return outputs.size() == 1 || outputs[1].dtype == DType::kUndefined ? 0 : -1;
}

}  // namespace

void RegisterIdentity(OperatorRegistry& registry) {
  registry.Add({.name = "Identity",
                .input_types = {kMovableTypes},
                .infer = InferPassedOn,
                .axes = ElementwiseAxes,
                .compile = CompileCopy,
                .hands_on = AlwaysHandsOn,
                .is_view = true,
                .in_place = true,
                .layout_agnostic = true,
                .native_half = true});
  registry.Add({.name = "Dropout",
                .max_inputs = 3,
                .max_outputs = 2,
                .input_types = {kFloatTypes, kFloatTypes, kBoolType},
                .infer = InferDropout,
                .axes = DropoutAxes,
                .compile = CompileCopy,
                .hands_on = DropoutHandsOn,
                .in_place = true,
                .native_half = true});
}

}  // namespace chairlift
