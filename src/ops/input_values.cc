#include "ops/input_values.h"

#include <utility>

namespace chairlift {

StatusOr<std::unique_ptr<Kernel>> CompileFromValues(const CompileContext& context,
                                                    std::initializer_list<int> inputs,
                                                    ValuesFactory make) {
  std::vector<Tensor> values(context.inputs.size());
  std::vector<TensorDesc> descs(context.inputs.size());
  bool constant = true;
  for (int i : inputs) {
    if (!context.has_input(i)) continue;
    const auto at = static_cast<size_t>(i);
    descs[at] = context.inputs[at];
    if (const Tensor* value = context.constant(i)) {
      values[at] = *value;
    } else {
      constant = false;
    }
  }
  // So that factories may index any input that the operator can have.
  constexpr size_t kMostInputs = 8;
  if (values.size() < kMostInputs) values.resize(kMostInputs);
  if (constant) return make(values);
  return MakeKernel([values, descs, make = std::move(make)](const KernelArgs& args) -> Status {
    std::vector<Tensor> read(values.size());
    for (size_t i = 0; i < descs.size(); ++i) {
      if (!descs[i].present()) continue;
      read[i] = Tensor::Wrap(descs[i].dtype, descs[i].shape, const_cast<void*>(args.inputs[i]));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto kernel, make(read));
    const Tensor scratch =
        Tensor::Allocate(DType::kUInt8, Shape{static_cast<int64_t>(kernel->scratch_bytes())});
    return kernel->Run(
        {args.inputs, args.outputs, const_cast<void*>(scratch.raw()), args.team, args.worker});
  });
}

std::optional<double> ScalarValue(const Tensor& t) {
  if (t.size() != 1) return std::nullopt;
  switch (t.dtype()) {
    case DType::kFloat:
      return *t.data<float>();
    case DType::kDouble:
      return *t.data<double>();
    case DType::kFloat16:
      return static_cast<float>(*t.data<Float16>());
    case DType::kBFloat16:
      return static_cast<float>(*t.data<BFloat16>());
    default:
      return std::nullopt;
  }
}

int64_t ScalarOr(const Tensor& t, int64_t fallback) {
  if (!t.present() || t.size() == 0) return fallback;
  return t.dtype() == DType::kInt64 ? t.data<int64_t>()[0] : t.data<int32_t>()[0];
}

}  // namespace chairlift
