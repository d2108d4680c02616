// Mod: the remainder, with the sign of the divisor (as Python) or, with fmod, of the dividend.
#include <cmath>
#include <type_traits>

#include "ops/elementwise/elementwise.h"

namespace chairlift {
namespace {

// x mod 0 is 0 for integers.
template <typename T>
struct FmodOp {
  static T Apply(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(x, y);
    } else {
      // −1 apart: the smallest integer divided by it traps.
      if (y == 0 || y == static_cast<T>(-1)) {
        return std::is_signed_v<T> || y == 0 ? T{0} : static_cast<T>(x == y ? 0 : x);
      }
      return static_cast<T>(x % y);
    }
  }
};
template <typename T>
struct ModOp {
  static T Apply(T x, T y) {
    const T r = FmodOp<T>::Apply(x, y);
    return r != 0 && (r < 0) != (y < 0) ? static_cast<T>(r + y) : r;
  }
};

Status Infer(InferContext& context) {
  const bool fmod = context.attributes().Int("fmod", 0) != 0;
  if (!fmod && kFloatTypes.Contains(context.dtype(0))) {
    return InvalidArgument("element type {} needs attribute fmod to be 1",
                           DTypeName(context.dtype(0)));
  }
  return InferBroadcast(context, context.dtype(0));
}

StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
  if (context.attributes.Int("fmod", 0) != 0) {
    return CompileBinary<FmodOp, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t,
                         uint16_t, uint32_t, uint64_t>(context);
  }
  return CompileBinary<ModOp, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                       uint64_t>(context);
}

}  // namespace

void RegisterMod(OperatorRegistry& registry) {
  registry.Add({.name = "Mod",
                .min_opset = 10,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kNumericTypes},
                .infer = Infer,
                .compile = Compile,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
