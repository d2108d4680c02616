// Range: start, start + delta, ... up to but not including limit. 16-bit floats are computed in
// float32, as stash_type 1 requires.
#include <cmath>
#include <type_traits>

#include "ops/axes.h"
#include "ops/generation/generation.h"

namespace chairlift {
namespace {

constexpr double kMostElements = 0x1p36;

// The number of elements; an error if there are too many or delta is 0.
template <typename T>
StatusOr<int64_t> Count(T start, T limit, T delta) {
  if (!(delta != T{0})) return InvalidArgument("delta is 0");
  double count;
  if constexpr (std::is_integral_v<T>) {
    if (delta > 0 ? start >= limit : start <= limit) return 0;
    // Unsigned, so that no difference overflows.
    const auto distance = delta > 0 ? static_cast<uint64_t>(limit) - static_cast<uint64_t>(start)
                                    : static_cast<uint64_t>(start) - static_cast<uint64_t>(limit);
    const auto step =
        delta > 0 ? static_cast<uint64_t>(delta) : uint64_t{0} - static_cast<uint64_t>(delta);
    const uint64_t whole = (distance - 1) / step + 1;
    count = static_cast<double>(whole);
  } else {
    count = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) /
                      static_cast<double>(delta));
  }
  if (!(count <= kMostElements)) return InvalidArgument("the range has too many elements");
  return count < 0 ? 0 : static_cast<int64_t>(count);
}

StatusOr<int64_t> CountOf(const InferContext& context) {
  return DispatchTypes<float, double, Float16, BFloat16, int16_t, int32_t, int64_t>(
      context.dtype(0), [&]<typename T>() {
        using Wide = std::conditional_t<std::is_class_v<T>, float, T>;
        const auto at = [&](int i) { return static_cast<Wide>(*context.value(i)->data<T>()); };
        return Count<Wide>(at(0), at(1), at(2));
      });
}

template <typename F>
auto DispatchRange(DType dtype, F&& f) {
  return DispatchTypes<float, double, int16_t, int32_t, int64_t>(dtype, std::forward<F>(f));
}

Status InferRange(InferContext& context) {
  const DType dtype = context.dtype(0);
  if (context.attributes().Int("stash_type", 1) != 1) {
    return Unimplemented("attribute stash_type is not 1 (float32)");
  }
  for (int i = 0; i < 3; ++i) {
    if (!context.has_input(i) || context.dtype(i) != dtype) {
      return InvalidArgument("start, limit and delta differ in element type");
    }
    const Tensor* value = context.value(i);
    if (value != nullptr && value->size() != 1) {
      return InvalidArgument("input {} has {} elements, not 1", i, value->size());
    }
  }
  Dim count = Dim::Unknown();
  if (context.value(0) != nullptr && context.value(1) != nullptr && context.value(2) != nullptr) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t known, CountOf(context));
    count = known;
  } else if (kIndexTypes.Contains(dtype)) {
    // 0, 1, ... n − 1, where n is a symbol.
    const auto start = ShapeElements(context, 0);
    const auto limit = ShapeElements(context, 1);
    const auto delta = ShapeElements(context, 2);
    const auto is = [](const auto& e, int64_t v) {
      return e && e->size() == 1 && (*e)[0].known() && (*e)[0].value() == v;
    };
    if (is(start, 0) && is(delta, 1) && limit && limit->size() == 1) count = (*limit)[0];
  }
  return SetOutput(context, 0, dtype, SymbolicShape({count}));
}

StatusOr<std::unique_ptr<Kernel>> CompileRange(const CompileContext& context) {
  return DispatchRange(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([count = context.outputs[0].size()](const KernelArgs& args) {
          const T start = *static_cast<const T*>(args.inputs[0]);
          const T delta = *static_cast<const T*>(args.inputs[2]);
          T* out = static_cast<T*>(args.outputs[0]);
          using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
          for (int64_t i = 0; i < count; ++i) {
            out[i] = static_cast<T>(static_cast<Wide>(start) +
                                    static_cast<Wide>(i) * static_cast<Wide>(delta));
          }
          return absl::OkStatus();
        });
      });
}

}  // namespace

void RegisterRange(OperatorRegistry& registry) {
  registry.Add({.name = "Range",
                .min_opset = 11,
                .min_inputs = 3,
                .max_inputs = 3,
                .input_types = {kFloatTypes | TypeSet{DType::kInt16, DType::kInt32, DType::kInt64}},
                .infer = InferRange,
                .compile = CompileRange});
}

}  // namespace chairlift
