#include "graph/onnx/float8_values.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include "graph/onnx/contrib/maker.h"
#include "ops/axes.h"
#include "ops/element_type.h"

namespace chairlift {
namespace {

using contrib::Maker;
using contrib::With;

constexpr int kBytesInFile = 2;  // TensorProto.UINT8

// Operators whose output 0 has the elements of input 0.
constexpr std::string_view kMoveFloat8[] = {"Flatten", "Identity",  "Reshape",
                                            "Squeeze", "Transpose", "Unsqueeze"};
// Operators that read only the type or the size of input 0, or convert it to another type.
constexpr std::string_view kReadFloat8[] = {"Cast", "CastLike", "DequantizeLinear", "Shape",
                                            "Size"};

template <size_t kCount>
bool Lists(const std::string_view (&names)[kCount], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool Quantizes(const OnnxNode& node) {
  return (node.domain.empty() || node.domain == "com.microsoft") &&
         node.op_type == "QuantizeLinear";
}
bool Dequantizes(const OnnxNode& node) {
  return (node.domain.empty() || node.domain == "com.microsoft") &&
         node.op_type == "DequantizeLinear";
}

bool MayRead(const OnnxNode& node, size_t input) {
  if (Dequantizes(node)) return input == 0 || input == 2;
  if (Quantizes(node)) return input == 2;
  if (!node.domain.empty()) return false;
  if (node.op_type == "CastLike") return input < 2;
  return input == 0 && (Lists(kMoveFloat8, node.op_type) || Lists(kReadFloat8, node.op_type));
}

// Zero points of 8-bit floats are 0 in ONNX.
Status CheckZero(const ValueInfo& zero) {
  if (zero.dtype == DType::kUndefined) return absl::OkStatus();
  const bool is_zero =
      zero.value != nullptr && zero.dtype == DType::kFloat &&
      std::all_of(zero.value->values<float>().begin(), zero.value->values<float>().end(),
                  [](float v) { return v == 0; });
  if (is_zero) return absl::OkStatus();
  return Unimplemented(
      "the zero point of an 8-bit float must be a constant of zeros; quantize symmetrically");
}

ValueId AsFloat(Maker& make, ValueId id) {
  return make.info(id).dtype == DType::kFloat ? id : make.CastToFloat(id);
}

// The scale as a tensor that broadcasts to x: one number, one for each index of `axis`, or one for
// each block along it.
ValueId ScaleFor(Maker& make, ValueId x) {
  const ValueId scale = AsFloat(make, make.in(1));
  const int rank = make.Rank(scale, "its scale");
  const int64_t block = make.attributes().Int("block_size", 0);
  if (!make.ok() || rank == 0) return scale;
  if (block < 0) make.Fail(InvalidArgument("block_size {} is negative", block));
  if (block == 0 && rank != 1) {
    make.Fail(
        InvalidArgument("its scale has {} dimensions; without block_size it has 0 or 1", rank));
  }
  if (block == 0 && make.Size(scale, 0, "its scale") == 1) return make.AsScalar(scale);
  const int x_rank = make.Rank(x, "its input");
  const auto axis = NormalizeAxis(make.attributes().Int("axis", 1), x_rank);
  make.Fail(axis.status());
  if (block > 0 && rank != x_rank) {
    make.Fail(
        InvalidArgument("its scale has {} dimensions; for blocks it must have {}", rank, x_rank));
  }
  if (!make.ok()) return kNoValue;
  const int64_t size = make.Size(x, *axis, "its input");
  if (block == 0) {
    if (make.ok() && make.Size(scale, 0, "its scale") != size) {
      make.Fail(InvalidArgument("its scale has {} entries; axis {} of its input has {}",
                                make.Size(scale, 0, "its scale"), *axis, size));
    }
    std::vector<int64_t> after(static_cast<size_t>(x_rank - 1 - *axis));
    std::iota(after.begin(), after.end(), int64_t{1});
    return after.empty() ? scale : make.Unsqueeze(scale, after);
  }
  constexpr int64_t kLongestAxis = int64_t{1} << 24;
  if (size > kLongestAxis) {
    make.Fail(Unimplemented("blocks along an axis of {} elements; up to {} are supported", size,
                            kLongestAxis));
  }
  if (!make.ok()) return kNoValue;
  std::vector<int64_t> blocks(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) blocks[static_cast<size_t>(i)] = i / block;
  return make.Make("Gather", {scale, make.Ints(blocks)}, With({{"axis", int64_t{*axis}}}));
}

ValueId Rounded(Maker& make, ValueId x, Float8 format) {
  return make.MakeOwn(
      "RoundToFloat8", {x},
      With({{"format", OnnxOfFloat8(format)}, {"saturate", make.attributes().Int("saturate", 1)}}));
}

Status CastToFloat8(Maker& make, Float8 format) {
  const ValueId x = make.in(0);
  const DType dtype = make.info(x).dtype;
  if (dtype == DType::kUndefined || dtype == DType::kBytes) {
    return Unimplemented("a cast to {} takes numbers whose type is known; cast to float32 first",
                         Float8Name(format));
  }
  const ValueId wide = kFloatTypes.Contains(dtype) ? x : make.CastToDouble(x);
  return make.Become("Identity", {Rounded(make, wide, format)});
}

Status QuantizeToFloat8(Maker& make, Float8 format) {
  if (const int64_t to = make.attributes().Int("output_dtype", 0);
      to != 0 && Float8OfOnnx(to) != format) {
    return InvalidArgument("its attribute output_dtype is {} where the zero point is {}", to,
                           Float8Name(format));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckZero(make.info(make.in(2))));
  const ValueId x = AsFloat(make, make.in(0));
  const ValueId scaled = make.Make("Div", {x, ScaleFor(make, make.in(0))});
  return make.Become("Identity", {Rounded(make, scaled, format)});
}

Status DequantizeFloat8(Maker& make) {
  constexpr TypeSet kResults = kHalfTypes | TypeSet{DType::kFloat};
  CHAIRLIFT_RETURN_IF_ERROR(CheckZero(make.info(make.in(2))));
  DType to = make.info(make.in(1)).dtype;
  if (const int64_t wanted = make.attributes().Int("output_dtype", 0); wanted != 0) {
    to = ElementTypeOfOnnx(wanted);
  }
  if (!kResults.Contains(to)) {
    return Unimplemented("it gives {}; float32, float16 and bfloat16 are supported", DTypeName(to));
  }
  const ValueId y = make.Make("Mul", {make.in(0), ScaleFor(make, make.in(0))});
  return make.Become("Cast", {y}, With({{"to", OnnxOfElementType(to)}}));
}

}  // namespace

StatusOr<Tensor> DecodeFloat8(const onnx::TensorProto& proto, Float8 format,
                              const DataFolder& folder,
                              const std::optional<RawDataInFile>& in_file) {
  onnx::TensorProto of_bytes = proto;
  of_bytes.set_data_type(kBytesInFile);
  const StatusOr<Tensor> bytes = DecodeTensor(of_bytes, folder, in_file);
  if (!bytes.ok()) return Annotate(bytes.status(), Float8Name(format));
  CHAIRLIFT_RETURN_IF_ERROR(bytes->shape().Checked(sizeof(float)).status());
  std::array<float, 256> values;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Float8Value(format, static_cast<uint8_t>(i));
  }
  Tensor tensor = Tensor::Allocate(DType::kFloat, bytes->shape());
  for (int64_t i = 0; i < bytes->size(); ++i) {
    tensor.data<float>()[i] = values[bytes->data<uint8_t>()[i]];
  }
  return tensor;
}

Status CheckFloat8Inputs(const OnnxNode& node, const Float8Inputs& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] || MayRead(node, i)) continue;
    return Unimplemented(
        "input {} has elements of type {}, which {} does not take; put a DequantizeLinear or a "
        "Cast "
        "to float before it",
        i, Float8Name(*inputs[i]), node.op_type);
  }
  if (Dequantizes(node) && inputs.size() > 2 && inputs[2] && inputs[2] != inputs[0]) {
    return InvalidArgument("its zero point is {}, but its input is not", Float8Name(*inputs[2]));
  }
  return absl::OkStatus();
}

std::optional<Float8> Float8Output(const OnnxNode& node, const Float8Inputs& inputs) {
  const auto of = [&](size_t i) { return i < inputs.size() ? inputs[i] : std::nullopt; };
  if (Quantizes(node)) {
    const std::optional<Float8> zero = of(2);
    return zero ? zero : Float8OfOnnx(node.attributes.Int("output_dtype", 0));
  }
  if (!node.domain.empty()) return std::nullopt;
  if (node.op_type == "Cast") return Float8OfOnnx(node.attributes.Int("to", 0));
  if (node.op_type == "CastLike") return of(1);
  return Lists(kMoveFloat8, node.op_type) ? of(0) : std::nullopt;
}

Status NormaliseFloat8(OnnxNode& node, const Float8Inputs& inputs, Rewriter& rewriter) {
  const std::optional<Float8> output = Float8Output(node, inputs);
  Maker make(node, rewriter);
  if (output && Quantizes(node)) return QuantizeToFloat8(make, *output);
  if (output && !Lists(kMoveFloat8, node.op_type)) return CastToFloat8(make, *output);
  if (Dequantizes(node) && !inputs.empty() && inputs[0]) return DequantizeFloat8(make);
  return absl::OkStatus();  // it reads float32
}

}  // namespace chairlift
