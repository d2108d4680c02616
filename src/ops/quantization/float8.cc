// RoundToFloat8(x){format, saturate}: x as float32, rounded to a value of an 8-bit float. `format`
// is the number in TensorProto.DataType. Micikevicius et al., "FP8 Formats for Deep Learning",
// 2022, and Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022 (FNUZ).
#include "ops/quantization/float8.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "ops/axis_map.h"
#include "ops/elementwise/element_loops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/quantization/quantization.h"

namespace chairlift {
namespace {

struct Float8Row {
  const char* name;
  int mantissa;  // bits
  int smallest;  // exponent of the smallest normal number
  double largest;
  bool has_infinity;
  bool has_minus_zero;  // else its code is the only NaN
};
constexpr Float8Row kFloat8[] = {{"float8e4m3fn", 3, -6, 448, false, true},
                                 {"float8e4m3fnuz", 3, -7, 240, false, false},
                                 {"float8e5m2", 2, -14, 57344, true, true},
                                 {"float8e5m2fnuz", 2, -15, 57344, false, false}};
constexpr int64_t kFirstFloat8 = 17;  // TensorProto.FLOAT8E4M3FN

const Float8Row& RowOf(Float8 format) { return kFloat8[static_cast<size_t>(format)]; }

struct RoundToFloat8Op {
  static float Apply(double x, const ElementParams& params) {
    return RoundToFloat8(static_cast<Float8>(static_cast<int>(params[0])), x, params[1] != 0);
  }
};

StatusOr<Float8> FormatOf(const Attributes& attributes) {
  const int64_t number = attributes.Int("format", kFirstFloat8);
  const std::optional<Float8> format = Float8OfOnnx(number);
  if (!format) return InvalidArgument("attribute format is {}; it must be 17 to 20", number);
  return *format;
}

Status InferRoundToFloat8(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(FormatOf(context.attributes()).status());
  context.set_output(0, DType::kFloat, context.shape(0));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileRoundToFloat8(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Float8 format, FormatOf(context.attributes));
  const ElementParams params = {static_cast<double>(format),
                                static_cast<double>(context.attributes.Int("saturate", 1))};
  return DispatchFloat(context.inputs[0].dtype, [&]<typename T>() {
    return MakeElementKernel(context, UnaryBlock<RoundToFloat8Op, T, float>, params);
  });
}

}  // namespace

std::optional<Float8> Float8OfOnnx(int64_t number) {
  const int64_t format = number - kFirstFloat8;
  if (format < 0 || format >= static_cast<int64_t>(std::size(kFloat8))) return std::nullopt;
  return static_cast<Float8>(format);
}

int64_t OnnxOfFloat8(Float8 format) { return kFirstFloat8 + static_cast<int64_t>(format); }

const char* Float8Name(Float8 format) { return RowOf(format).name; }

float Float8Value(Float8 format, uint8_t code) {
  const Float8Row& row = RowOf(format);
  const int bits = code & 127, exponent = bits >> row.mantissa;
  const int fraction = bits & ((1 << row.mantissa) - 1), one = 1 << row.mantissa;
  if (!row.has_minus_zero && code == 128) return std::numeric_limits<float>::quiet_NaN();
  const double size = exponent == 0
                          ? std::ldexp(fraction, row.smallest - row.mantissa)
                          : std::ldexp(one + fraction, exponent - 1 + row.smallest - row.mantissa);
  float value = static_cast<float>(size);
  // Codes above the largest value: E5M2 begins with infinity, the others are NaN.
  if (size > row.largest) {
    value = row.has_infinity && fraction == 0 ? std::numeric_limits<float>::infinity()
                                              : std::numeric_limits<float>::quiet_NaN();
  }
  return code >= 128 ? -value : value;
}

float RoundToFloat8(Float8 format, double x, bool saturate) {
  const Float8Row& row = RowOf(format);
  if (std::isnan(x)) return std::numeric_limits<float>::quiet_NaN();
  const double size = std::abs(x);
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(size) >> 52) - 1023;
  // The distance between neighbours, which are its multiples. Adding 2⁵² of them rounds to one.
  const int step = std::clamp(exponent, row.smallest, 16) - row.mantissa;
  const double magic = std::bit_cast<double>(static_cast<uint64_t>(step + 52 + 1023) << 52);
  double rounded = size + magic - magic;
  if (size > 2 * row.largest || rounded > row.largest) {
    rounded = saturate           ? row.largest
              : row.has_infinity ? std::numeric_limits<double>::infinity()
                                 : std::numeric_limits<double>::quiet_NaN();
  }
  if (rounded == 0 && !row.has_minus_zero) return 0;
  return static_cast<float>(std::copysign(rounded, x));
}

void RegisterRoundToFloat8(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "RoundToFloat8",
                .input_types = {kFloatTypes},
                .infer = InferRoundToFloat8,
                .axes = ElementwiseAxes,
                .compile = CompileRoundToFloat8,
                .layout_agnostic = true});
}

}  // namespace chairlift
