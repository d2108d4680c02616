// Mod: the remainder, with the sign of the divisor (as in Python) or, with fmod, of the dividend.
#include <cmath>
#include <type_traits>

#include "ops/axis_map.h"
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
      // −1 is handled separately: dividing the smallest integer by it traps.
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
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isinf(y) && std::isfinite(x) && x != 0) return (x < 0) == (y < 0) ? x : y;
      if (r == 0) return std::copysign(r, y);
    }
    return r != 0 && (r < 0) != (y < 0) ? static_cast<T>(r + y) : r;
  }
};

Status InferMod(InferContext& context) { return InferBroadcast(context, context.dtype(0)); }

StatusOr<std::unique_ptr<Kernel>> CompileMod(const CompileContext& context) {
  if (context.attributes.Int("fmod", 0) != 0) {
    return CompileBinary<FmodOp, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t,
                         uint16_t, uint32_t, uint64_t>(context);
  }
  return CompileBinary<ModOp, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                       uint32_t, uint64_t>(context);
}

}  // namespace

void RegisterMod(OperatorRegistry& registry) {
  registry.Add({.name = "Mod",
                .min_opset = 10,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kNumericTypes},
                .infer = InferMod,
                .axes = ElementwiseAxes,
                .compile = CompileMod,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
