#include "ops/quantization/scaled_integer_product.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ops/axis_map.h"
#include "ops/linear/huge_tensor.h"
#include "ops/linear/int8_gemm.h"
#include "ops/linear/team_cut.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/quantization.h"

namespace chairlift {
namespace {

bool TransposesW(const Attributes& attributes) { return attributes.Int("transpose_w", 0) != 0; }

Status CheckScaledInput(const InferContext& context, int input, const char* name, const Dim& lines,
                        const char* of) {
  if (!context.has_input(input) || !context.shape(input).concrete()) return absl::OkStatus();
  const int64_t count = context.shape(input).ToShape().NumElements();
  if (count == 1 || !lines.known() || count == lines.value()) return absl::OkStatus();
  return InvalidArgument("{} has {} elements; it must have 1, or {}, one for each {}", name, count,
                         lines.value(), of);
}

Status CheckZeroType(const InferContext& context, int zero, int operand, const char* name) {
  if (!context.has_input(zero) || context.dtype(zero) == context.dtype(operand)) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} is {}; it must be {}, as its operand", name,
                         DTypeName(context.dtype(zero)), DTypeName(context.dtype(operand)));
}

Status InferScaledProduct(InferContext& context) {
  using In = ScaledProduct;
  CHAIRLIFT_RETURN_IF_ERROR(Activation::Parse(context.attributes()).status());
  if (!context.has_input(In::kWScale)) return InvalidArgument("the scale of W is missing");
  CHAIRLIFT_RETURN_IF_ERROR(CheckZeroType(context, In::kAZero, In::kA, "A's zero point"));
  CHAIRLIFT_RETURN_IF_ERROR(CheckZeroType(context, In::kWZero, In::kW, "W's zero point"));
  const SymbolicShape& a = context.shape(In::kA);
  const SymbolicShape& w = context.shape(In::kW);
  if (a.has_rank() && a.rank() == 0) return InvalidArgument("A is a scalar");
  if (!w.has_rank() || w.rank() != 2) return InvalidArgument("W is {}, not a matrix", w.ToString());
  const bool transposed = TransposesW(context.attributes());
  const Dim& k = w[transposed ? 1 : 0];
  const Dim& n = w[transposed ? 0 : 1];
  if (a.has_rank() && a[a.rank() - 1].known() && k.known() &&
      a[a.rank() - 1].value() != k.value()) {
    return InvalidArgument("inner dimensions differ: {} by {}", a.ToString(), w.ToString());
  }
  SymbolicShape out = a;
  if (out.has_rank()) out[out.rank() - 1] = n;
  CHAIRLIFT_RETURN_IF_ERROR(CheckScaledInput(context, In::kWScale, "W's scale", n, "column"));
  CHAIRLIFT_RETURN_IF_ERROR(CheckScaledInput(context, In::kWZero, "W's zero point", n, "column"));
  if (a.concrete()) {
    const Shape of_a = a.ToShape();
    const Dim rows(of_a.NumElements(0, of_a.rank() - 1));
    CHAIRLIFT_RETURN_IF_ERROR(CheckScaledInput(context, In::kAScale, "A's scale", rows, "row"));
    CHAIRLIFT_RETURN_IF_ERROR(CheckScaledInput(context, In::kAZero, "A's zero point", rows, "row"));
  }
  if (context.has_input(In::kBias) && context.shape(In::kBias).concrete() && n.known()) {
    const Shape bias = context.shape(In::kBias).ToShape();
    if (bias.rank() != 1 || bias[0] != n.value()) {
      return InvalidArgument("the bias {} must be one value a column of {}", bias.ToString(),
                             w.ToString());
    }
  }
  if (context.has_input(In::kResidual) && context.shape(In::kResidual).concrete() &&
      out.concrete() && !(context.shape(In::kResidual).ToShape() == out.ToShape())) {
    return InvalidArgument("the residual {} must have the product's shape {}",
                           context.shape(In::kResidual).ToString(), out.ToString());
  }
  context.set_output(0, DType::kFloat, std::move(out));
  return absl::OkStatus();
}

class ScaledIntegerProduct final : public Kernel {
 public:
  using In = ScaledProduct;

  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<ScaledIntegerProduct>();
    CHAIRLIFT_ASSIGN_OR_RETURN(made->activation_, Activation::Parse(context.attributes));
    const Shape& a = context.inputs[In::kA].shape;
    const Shape& w = context.inputs[In::kW].shape;
    const bool transposed = made->transposed_ = TransposesW(context.attributes);
    made->m_ = a.NumElements(0, a.rank() - 1);
    made->k_ = w[transposed ? 1 : 0];
    made->n_ = w[transposed ? 0 : 1];
    made->a_signed_ = context.inputs[In::kA].dtype == DType::kInt8;
    made->w_signed_ = context.inputs[In::kW].dtype == DType::kInt8;
    const auto stride = [&](int input) {
      return context.has_input(input) && context.inputs[input].size() != 1 ? 1 : 0;
    };
    made->scale_stride_ = stride(In::kAScale);
    made->zero_stride_ = stride(In::kAZero);
    made->w_scale_stride_ = stride(In::kWScale);
    made->w_zero_stride_ = stride(In::kWZero);
    made->cut_ = CutForTiles(made->m_, made->n_, made->k_, context.width);
    if (context.choice != nullptr) context.choice->taken = Int8KernelName(made->kernel_);
    CHAIRLIFT_RETURN_IF_ERROR(made->PackConstant(context));
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override {
    return packed_.present() ? 0 : static_cast<size_t>(PackedInt8Bytes(k_, n_));
  }

  Status Run(const KernelArgs& args) const override {
    if (m_ == 0 || n_ == 0) return absl::OkStatus();
    const auto input = [&](size_t i) {
      return i < args.inputs.size() ? static_cast<const std::byte*>(args.inputs[i]) : nullptr;
    };
    const void* packed = packed_.present() ? packed_.raw() : args.scratch;
    if (!packed_.present()) {
      Pack(input(In::kW), input(In::kWZero), reinterpret_cast<const float*>(input(In::kWScale)),
           args.scratch);
    }
    const int64_t panels = GemmPanels(n_);
    args.team.For(cut_.parts(), [&](int part, int) {
      const int64_t row_part = part / cut_.column_parts, column_part = part % cut_.column_parts;
      const int64_t row = m_ * row_part / cut_.row_parts;
      const int64_t rows = m_ * (row_part + 1) / cut_.row_parts - row;
      Int8Product product{.packed = packed,
                          .n = n_,
                          .first = panels * column_part / cut_.column_parts,
                          .last = panels * (column_part + 1) / cut_.column_parts,
                          .c = static_cast<float*>(args.outputs[0]) + row * n_,
                          .c_stride = n_,
                          .epilogue = {}};
      product.epilogue.activation = activation_;
      product.epilogue.bias = reinterpret_cast<const float*>(input(In::kBias));
      if (const auto* residual = reinterpret_cast<const float*>(input(In::kResidual))) {
        product.epilogue.residual = residual + row * n_;
        product.epilogue.residual_stride = n_;
      }
      Int8Parameters of_rows{.zeros = input(In::kAZero),
                             .zero_stride = zero_stride_,
                             .scales = reinterpret_cast<const float*>(input(In::kAScale)),
                             .scale_stride = scale_stride_};
      if (zero_stride_ != 0) of_rows.zeros = input(In::kAZero) + row;
      if (scale_stride_ != 0) of_rows.scales += row;
      Int8Gemm(kernel_, {input(In::kA) + row * k_, a_signed_, k_, 1}, of_rows, rows, k_,
               {&product, 1});
    });
    return absl::OkStatus();
  }

 private:
  // From W, its zero points (or null) and its scales.
  void Pack(const void* w, const void* zeros, const float* scales, void* packed) const {
    PackInt8Weights({w, w_signed_, transposed_ ? 1 : n_, transposed_ ? k_ : 1},
                    {zeros, w_zero_stride_, scales, w_scale_stride_}, k_, n_, packed);
  }

  Status PackConstant(const CompileContext& context) {
    const Tensor* w = context.constant(In::kW);
    const Tensor* scale = context.constant(In::kWScale);
    const Tensor* zero = context.constant(In::kWZero);
    if (w == nullptr || scale == nullptr || (zero == nullptr && context.has_input(In::kWZero))) {
      return absl::OkStatus();
    }
    // One weight may be used with several scales and zero points: their bytes are part of the name.
    std::string key = fmt::format("int8 {}x{} {} ", k_, n_, transposed_);
    key.append(static_cast<const char*>(scale->raw()), scale->byte_size());
    if (zero != nullptr) key.append(static_cast<const char*>(zero->raw()), zero->byte_size());
    CHAIRLIFT_ASSIGN_OR_RETURN(packed_, context.weights.Get(*w, key, [&]() -> StatusOr<Tensor> {
      Tensor packed = HugeTensor(DType::kUInt8, Shape{PackedInt8Bytes(k_, n_)});
      Pack(w->raw(), zero == nullptr ? nullptr : zero->raw(), scale->data<float>(), packed.raw());
      return packed;
    }));
    return absl::OkStatus();
  }

  const Int8Kernel kernel_ = MachineInt8Kernel();
  int64_t m_ = 0, n_ = 0, k_ = 0;
  bool a_signed_ = false, w_signed_ = false, transposed_ = false;
  int64_t scale_stride_ = 0, zero_stride_ = 0, w_scale_stride_ = 0, w_zero_stride_ = 0;
  Activation activation_;
  TeamCut cut_;
  Tensor packed_;  // if W, its scales and its zero points are constants
};

}  // namespace

void RegisterScaledIntegerProduct(OperatorRegistry& registry) {
  const TypeSet bytes{DType::kInt8, DType::kUInt8};
  const TypeSet floats{DType::kFloat};
  OperatorDef def;
  def.domain = "chairlift";
  def.name = "ScaledIntegerProduct";
  def.min_inputs = 2;  // and kWScale
  def.max_inputs = ScaledProduct::kInputs;
  def.input_types = {bytes, bytes, floats, floats, floats, bytes, floats, bytes};
  def.infer = InferScaledProduct;
  def.compile = ScaledIntegerProduct::Compile;
  def.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                         std::span<const TensorDesc> out) {
    return ProductMultiplyAdds(out[0], in[ScaledProduct::kA].shape.dims().back());
  };
  registry.Add(std::move(def));
}

}  // namespace chairlift
