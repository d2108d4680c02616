// How ScatterElements and ScatterND combine an update with an element.
#ifndef CHAIRLIFT_OPS_MOVEMENT_SCATTER_REDUCTION_H_
#define CHAIRLIFT_OPS_MOVEMENT_SCATTER_REDUCTION_H_

#include <cstdint>
#include <type_traits>

#include "ops/operator.h"

namespace chairlift {

enum class ScatterReduction { kNone, kAdd, kMul, kMax, kMin };

inline StatusOr<ScatterReduction> ParseScatterReduction(const Attributes& attributes) {
  const std::string name = attributes.String("reduction", "none");
  if (name == "none") return ScatterReduction::kNone;
  if (name == "add") return ScatterReduction::kAdd;
  if (name == "mul") return ScatterReduction::kMul;
  if (name == "max") return ScatterReduction::kMax;
  if (name == "min") return ScatterReduction::kMin;
  return InvalidArgument("reduction '{}' is not none, add, mul, max or min", name);
}

template <ScatterReduction kReduction, typename T>
T Combine(T old, T update) {
  if constexpr (kReduction == ScatterReduction::kNone) {
    return update;
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(Combine<kReduction>(static_cast<float>(old), static_cast<float>(update)));
  } else if constexpr (std::is_same_v<T, bool>) {
    constexpr bool kEither =
        kReduction == ScatterReduction::kAdd || kReduction == ScatterReduction::kMax;
    return kEither ? old || update : old && update;
  } else if constexpr (kReduction == ScatterReduction::kMax) {
    return update > old || update != update ? update : old;
  } else if constexpr (kReduction == ScatterReduction::kMin) {
    return update < old || update != update ? update : old;
  } else if constexpr (std::is_integral_v<T>) {
    // Unsigned, so that overflow wraps.
    const auto a = uint64_t{static_cast<std::make_unsigned_t<T>>(old)};
    const auto b = uint64_t{static_cast<std::make_unsigned_t<T>>(update)};
    return static_cast<T>(kReduction == ScatterReduction::kAdd ? a + b : a * b);
  } else {
    return kReduction == ScatterReduction::kAdd ? old + update : old * update;
  }
}

// f.operator()<T, kReduction>() with T the element type, or an unsigned type of its width if
// nothing is computed.
template <typename F>
StatusOr<std::unique_ptr<Kernel>> DispatchScatter(DType dtype, ScatterReduction reduction, F f) {
  using Result = StatusOr<std::unique_ptr<Kernel>>;
  if (reduction == ScatterReduction::kNone) {
    return DispatchWidth(dtype, [&]<typename T>() -> Result {
      return f.template operator()<T, ScatterReduction::kNone>();
    });
  }
  return DispatchTypes<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t,
                       uint16_t, uint32_t, uint64_t, bool>(dtype, [&]<typename T>() -> Result {
    switch (reduction) {
      case ScatterReduction::kAdd:
        return f.template operator()<T, ScatterReduction::kAdd>();
      case ScatterReduction::kMul:
        return f.template operator()<T, ScatterReduction::kMul>();
      case ScatterReduction::kMax:
        return f.template operator()<T, ScatterReduction::kMax>();
      default:
        return f.template operator()<T, ScatterReduction::kMin>();
    }
  });
}

// Updates have data's element type.
inline Status CheckUpdateType(const InferContext& context) {
  if (context.dtype(2) != context.dtype(0)) {
    return InvalidArgument("updates are {}, but data is {}; both must have one type",
                           DTypeName(context.dtype(2)), DTypeName(context.dtype(0)));
  }
  return absl::OkStatus();
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_SCATTER_REDUCTION_H_
