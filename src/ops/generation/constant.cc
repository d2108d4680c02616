// Constant: a tensor given as an attribute.
#include <cstring>

#include "ops/generation/generation.h"

namespace chairlift {
namespace {

StatusOr<Tensor> ValueOf(const Attributes& a) {
  if (const auto* tensor = a.Find<Tensor>("value")) return *tensor;
  if (const auto* v = a.Find<float>("value_float")) return Tensor::Scalar(*v);
  if (const auto* v = a.Find<int64_t>("value_int")) return Tensor::Scalar(*v);
  if (const auto* v = a.Find<std::vector<float>>("value_floats")) {
    return Tensor::Of<float>({static_cast<int64_t>(v->size())}, *v);
  }
  if (const auto* v = a.Find<std::vector<int64_t>>("value_ints")) {
    return Tensor::Of<int64_t>({static_cast<int64_t>(v->size())}, *v);
  }
  return Unimplemented("a constant given as sparse tensor or strings");
}

Status InferConstant(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor value, ValueOf(context.attributes()));
  context.set_output(0, value.dtype(), SymbolicShape(value.shape()));
  constexpr int64_t kMostElements = 64;
  if (value.dtype() == DType::kInt64 && value.shape().rank() <= 1 &&
      value.size() <= kMostElements) {
    const auto elements = value.values<int64_t>();
    context.set_output_elements(0, std::vector<Dim>(elements.begin(), elements.end()));
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileConstant(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor value, ValueOf(context.attributes));
  return MakeKernel([value](const KernelArgs& args) {
    if (value.byte_size() > 0) std::memcpy(args.outputs[0], value.raw(), value.byte_size());
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterConstant(OperatorRegistry& registry) {
  registry.Add({.name = "Constant",
                .min_inputs = 0,
                .max_inputs = 0,
                .infer = InferConstant,
                .compile = CompileConstant,
                .native_half = true});
}

}  // namespace chairlift
