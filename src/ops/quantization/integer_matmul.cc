// MatMulInteger and QLinearMatMul: batched products of 8-bit matrices, zero points by matrix, row
// of A or column of B.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/broadcast.h"
#include "ops/linear/huge_tensor.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/integer_product.h"
#include "ops/quantization/quantization.h"
#include "ops/quantization/scale_ratio.h"

namespace chairlift {
namespace {

// The input numbers of an operator's operands; −1 if it has no such operand.
struct MatMulInputs {
  int a = 0, b = 1, a_zero = 2, b_zero = 3;
  int a_scale = -1, b_scale = -1, y_scale = -1, y_zero = -1;
};
constexpr MatMulInputs kMatMulInteger{};
constexpr MatMulInputs kQLinearMatMul{0, 3, 2, 5, 1, 4, 6, 7};

// The dimensions of a matrix product, A [batches..., m, k] by B [batches..., k, n].
struct Matrices {
  std::vector<int64_t> batch, a_batch, b_batch;  // dimensions
  int64_t m = 0, n = 0, k = 0;

  static int64_t Product(const std::vector<int64_t>& dims) {
    int64_t p = 1;
    for (int64_t d : dims) p *= d;
    return p;
  }
  // The matrix of an operand for matrix `index` of the output.
  int64_t Operand(const std::vector<int64_t>& dims, int64_t index) const {
    int64_t at = 0;
    int64_t stride = 1;
    for (size_t i = 1; i <= dims.size(); ++i) {
      const int64_t size = batch[batch.size() - i];
      const int64_t dim = dims[dims.size() - i];
      if (dim != 1) at += index % size * stride;
      index /= size;
      stride *= dim;
    }
    return at;
  }
};

// A vector is a row (A) or a column (B).
Shape AsMatrix(Shape shape, bool is_a) {
  if (shape.rank() == 1) shape.Insert(is_a ? 0 : 1, 1);
  return shape;
}

Matrices MatricesOf(Shape a, Shape b) {
  a = AsMatrix(a, true);
  b = AsMatrix(b, false);
  Matrices p;
  p.m = a[a.rank() - 2];
  p.k = a[a.rank() - 1];
  p.n = b[b.rank() - 1];
  p.a_batch.assign(a.begin(), a.end() - 2);
  p.b_batch.assign(b.begin(), b.end() - 2);
  const size_t rank = std::max(p.a_batch.size(), p.b_batch.size());
  for (size_t i = 0; i < rank; ++i) {
    const auto at = [&](const std::vector<int64_t>& dims) {
      return i + dims.size() < rank ? 1 : dims[i + dims.size() - rank];
    };
    p.batch.push_back(at(p.a_batch) == 1 ? at(p.b_batch) : at(p.a_batch));
  }
  return p;
}

StatusOr<SymbolicShape> ProductShape(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank()) return SymbolicShape();
  if (a.rank() == 0 || b.rank() == 0) return InvalidArgument("scalars have no matrix product");
  const Dim& a_k = a[a.rank() - 1];
  const Dim& b_k = b[std::max(b.rank() - 2, 0)];
  if (a_k.known() && b_k.known() && a_k.value() != b_k.value()) {
    return InvalidArgument("inner dimensions differ: {} by {}", a.ToString(), b.ToString());
  }
  const auto batch_of = [](const SymbolicShape& s) {
    const int rank = std::max(s.rank() - 2, 0);
    return SymbolicShape(std::vector<Dim>(s.dims().begin(), s.dims().begin() + rank));
  };
  const SymbolicShape batches[] = {batch_of(a), batch_of(b)};
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape out, BroadcastShapes(batches));
  if (a.rank() > 1) out.Append(a[a.rank() - 2]);
  if (b.rank() > 1) out.Append(b[b.rank() - 1]);
  return out;
}

// A scale or zero point: one, or one per row of A (column of B), for all matrices or for each.
Status CheckParameter(const InferContext& context, int input, const char* name, int64_t lines,
                      int64_t matrices) {
  if (input < 0 || !context.has_input(input) || !context.shape(input).concrete()) return {};
  const Shape shape = context.shape(input).ToShape();
  const int64_t count = shape.NumElements();
  if (count == 1 || count == lines || (shape.rank() > 1 && count == lines * matrices)) return {};
  return InvalidArgument("{} has shape {}; 1 or {} entries are needed", name, shape.ToString(),
                         lines);
}

Status CheckType(const InferContext& context, int zero, int operand, const char* name) {
  if (!context.has_input(zero) || context.dtype(zero) == context.dtype(operand)) return {};
  return InvalidArgument("{} is {} where its operand is {}", name, DTypeName(context.dtype(zero)),
                         DTypeName(context.dtype(operand)));
}

Status InferProduct(InferContext& context, const MatMulInputs& at, DType output) {
  const SymbolicShape& a = context.shape(at.a);
  const SymbolicShape& b = context.shape(at.b);
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, ProductShape(a, b));
  CHAIRLIFT_RETURN_IF_ERROR(CheckType(context, at.a_zero, at.a, "A's zero point"));
  CHAIRLIFT_RETURN_IF_ERROR(CheckType(context, at.b_zero, at.b, "B's zero point"));
  if (a.concrete() && b.concrete()) {
    const Matrices p = MatricesOf(a.ToShape(), b.ToShape());
    const int64_t a_count = Matrices::Product(p.a_batch);
    const int64_t b_count = Matrices::Product(p.b_batch);
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.a_zero, "A's zero point", p.m, a_count));
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.b_zero, "B's zero point", p.n, b_count));
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.a_scale, "A's scale", p.m, a_count));
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.b_scale, "B's scale", p.n, b_count));
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.y_scale, "Y's scale", 1, 1));
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.y_zero, "Y's zero point", 1, 1));
  }
  return SetOutput(context, 0, output, std::move(shape));
}

// Entries of a parameter, and whether each matrix has separate ones.
struct Parameter {
  int input = -1;
  int64_t stride = 0;         // 0: one for all
  int64_t matrix_stride = 0;  // entries

  static Parameter Of(const CompileContext& context, int input, int64_t lines, int64_t matrices) {
    Parameter p;
    if (input < 0 || !context.has_input(input)) return p;
    const int64_t count = context.inputs[input].size();
    p.input = input;
    p.stride = count == 1 ? 0 : 1;
    p.matrix_stride = count == lines * matrices && matrices > 1 && count > 1 ? lines : 0;
    return p;
  }
  // The zero points of one matrix, of all those at `data`.
  ZeroPoints Zeros(const void* data, bool is_signed, int64_t matrix) const {
    if (data == nullptr) return {};
    return {static_cast<const int8_t*>(data) + matrix * matrix_stride, is_signed, stride};
  }
  const float* Scales(const KernelArgs& args, int64_t matrix) const {
    return static_cast<const float*>(args.inputs[input]) + matrix * matrix_stride;
  }
};

class IntegerMatMul final : public Kernel {
 public:
  IntegerMatMul(const CompileContext& context, const MatMulInputs& at)
      : at_(at), p_(MatricesOf(context.inputs[at.a].shape, context.inputs[at.b].shape)) {
    const int64_t a_count = Matrices::Product(p_.a_batch);
    const int64_t b_count = Matrices::Product(p_.b_batch);
    a_signed_ = context.inputs[at.a].dtype == DType::kInt8;
    b_signed_ = context.inputs[at.b].dtype == DType::kInt8;
    y_signed_ = context.outputs[0].dtype == DType::kInt8;
    a_zero_ = Parameter::Of(context, at.a_zero, p_.m, a_count);
    b_zero_ = Parameter::Of(context, at.b_zero, p_.n, b_count);
    a_scale_ = Parameter::Of(context, at.a_scale, p_.m, a_count);
    b_scale_ = Parameter::Of(context, at.b_scale, p_.n, b_count);
    const double work = static_cast<double>(p_.m) * p_.n * p_.k;
    if (context.width > 1 && work > kSplitWork) {
      parts_ = static_cast<int>(std::min<int64_t>(context.width, IntegerPanels(p_.n)));
    }
  }

  // Widens B in advance if it and its zero points are constant.
  Status PackConstant(const CompileContext& context) {
    const Tensor* b = context.constant(at_.b);
    const Tensor* zero = b_zero_.input < 0 ? nullptr : context.constant(b_zero_.input);
    if (b == nullptr || (b_zero_.input >= 0 && zero == nullptr)) return {};
    // One weight may be used with several zero points: their bytes are part of the name.
    std::string key = fmt::format("wide {}x{} ", p_.k, p_.n);
    if (zero != nullptr) key.append(static_cast<const char*>(zero->raw()), zero->byte_size());
    CHAIRLIFT_ASSIGN_OR_RETURN(packed_, context.weights.Get(*b, key, [&] {
      const int64_t count = Matrices::Product(p_.b_batch);
      Tensor wide = HugeTensor(DType::kInt16, Shape{count, WidePanelsSize(p_.n, p_.k)});
      for (int64_t i = 0; i < count; ++i) {
        const void* zeros = zero == nullptr ? nullptr : zero->raw();
        WidenPanels(B(b->raw(), i), b_zero_.Zeros(zeros, b_signed_, i), p_.n, p_.k, 0,
                    IntegerPanels(p_.n), wide.data<int16_t>() + i * WidePanelsSize(p_.n, p_.k));
      }
      return StatusOr<Tensor>(std::move(wide));
    }));
    return {};
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(ABytes() + BBytes() + (at_.y_scale < 0 ? 0 : p_.m * p_.n * 4));
  }

  Status Run(const KernelArgs& args) const override {
    auto* scratch = static_cast<std::byte*>(args.scratch);
    auto* wide_a = reinterpret_cast<int16_t*>(scratch);
    auto* wide_b = reinterpret_cast<int16_t*>(scratch + ABytes());
    const auto input = [&](int i) { return i < 0 ? nullptr : args.inputs[i]; };
    const int64_t count = p_.m * p_.n == 0 ? 0 : Matrices::Product(p_.batch);
    int64_t a_before = -1;
    int64_t b_before = -1;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t ai = p_.Operand(p_.a_batch, i);
      const int64_t bi = p_.Operand(p_.b_batch, i);
      if (ai != a_before) {
        const ByteMatrix a{static_cast<const std::byte*>(input(at_.a)) + ai * p_.m * p_.k,
                           a_signed_, p_.k, 1};
        WidenRows(a, a_zero_.Zeros(input(a_zero_.input), a_signed_, ai), p_.m, p_.k, wide_a);
      }
      const bool widens_b = !packed_.present() && bi != b_before;
      a_before = ai;
      b_before = bi;
      const int16_t* b =
          packed_.present() ? packed_.data<int16_t>() + bi * WidePanelsSize(p_.n, p_.k) : wide_b;
      Spread(args, [&](int64_t first, int64_t last) {
        if (widens_b) {
          WidenPanels(B(input(at_.b), bi), b_zero_.Zeros(input(b_zero_.input), b_signed_, bi), p_.n,
                      p_.k, first, last, wide_b);
        }
        if (at_.y_scale < 0) {
          IntegerProduct(wide_a, b, p_.m, p_.n, p_.k, first, last,
                         static_cast<int32_t*>(args.outputs[0]) + i * p_.m * p_.n, p_.n);
          return;
        }
        auto* sums = reinterpret_cast<int32_t*>(scratch + ABytes() + BBytes());
        IntegerProduct(wide_a, b, p_.m, p_.n, p_.k, first, last, sums, p_.n);
        Store(args, i, ai, bi, first * kIntegerPanel, std::min(p_.n, last * kIntegerPanel), sums);
      });
    }
    return {};
  }

 private:
  // Below this many multiply-adds, a team is not worth its fork and join.
  static constexpr double kSplitWork = 1e6;

  int64_t ABytes() const { return (p_.m * WideRowStride(p_.k) * 2 + 63) / 64 * 64; }
  int64_t BBytes() const {
    return packed_.present() ? 0 : (WidePanelsSize(p_.n, p_.k) * 2 + 63) / 64 * 64;
  }
  ByteMatrix B(const void* data, int64_t matrix) const {
    return {static_cast<const std::byte*>(data) + matrix * p_.k * p_.n, b_signed_, p_.n, 1};
  }
  // Calls body(first panel, last panel) for each part.
  template <typename F>
  void Spread(const KernelArgs& args, F body) const {
    const int64_t panels = IntegerPanels(p_.n);
    if (parts_ == 1) {
      body(int64_t{0}, panels);
    } else {
      args.team.For(parts_, [&](int part, int) {
        body(panels * part / parts_, panels * (part + 1) / parts_);
      });
    }
  }
  // Quantises the columns [first, last) of matrix i.
  void Store(const KernelArgs& args, int64_t i, int64_t ai, int64_t bi, int64_t first, int64_t last,
             const int32_t* sums) const {
    const float y_scale = *static_cast<const float*>(args.inputs[at_.y_scale]);
    const ZeroPoints y_zero{args.inputs[at_.y_zero], y_signed_, 0};
    const float* a_scales = a_scale_.Scales(args, ai);
    const float* b_scales = b_scale_.Scales(args, bi);
    // One call per row if B has one scale, else one per column.
    const int64_t step = b_scale_.stride == 0 ? last - first : 1;
    for (int64_t r = 0; r < p_.m; ++r) {
      const float row_scale = a_scales[r * a_scale_.stride];
      std::byte* row = static_cast<std::byte*>(args.outputs[0]) + (i * p_.m + r) * p_.n;
      for (int64_t c = first; c < last; c += step) {
        Requantize(sums + r * p_.n + c, step,
                   ScaleRatio(row_scale, b_scales[c * b_scale_.stride], y_scale), y_zero[0],
                   y_signed_, row + c);
      }
    }
  }

  const MatMulInputs at_;
  const Matrices p_;
  bool a_signed_ = false, b_signed_ = false, y_signed_ = false;
  Parameter a_zero_, b_zero_, a_scale_, b_scale_;
  int parts_ = 1;
  Tensor packed_;  // every matrix of B, widened
};

StatusOr<std::unique_ptr<Kernel>> CompileIntegerProduct(const CompileContext& context,
                                                        const MatMulInputs& at) {
  auto kernel = std::make_unique<IntegerMatMul>(context, at);
  CHAIRLIFT_RETURN_IF_ERROR(kernel->PackConstant(context));
  return std::unique_ptr<Kernel>(std::move(kernel));
}

constexpr TypeSet kMatMulTypes{DType::kInt8, DType::kUInt8};
constexpr TypeSet kScales = kHalfTypes | TypeSet{DType::kFloat};

// Zero points and scales are one for all, one per row of A (column of B), or one for each of every
// matrix: [..., m, 1] and [..., 1, n].
StatusOr<AxisMap> AxesOfIntegerMatmul(const InferContext& context, const MatMulInputs& at) {
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, ProductAxes(context, at.a, at.b));
  const auto parameter = [&](int i, bool by_row) -> Status {
    if (i < 0 || !context.has_input(i)) return absl::OkStatus();
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, i));
    AxisMap::Operand& operand = map.inputs[static_cast<size_t>(i)];
    operand.broadcasts = true;
    for (int label = rank - 1; label >= 0; --label) {
      // For a vector its only axis; otherwise not the one that is 1.
      const bool none = rank > 1 && label == (by_row ? 0 : 1);
      operand.labels.push_back(none ? AxisMap::kNone : rank == 1 ? (by_row ? 1 : 0) : label);
    }
    return absl::OkStatus();
  };
  for (const int i : {at.a_zero, at.a_scale}) CHAIRLIFT_RETURN_IF_ERROR(parameter(i, true));
  for (const int i : {at.b_zero, at.b_scale}) CHAIRLIFT_RETURN_IF_ERROR(parameter(i, false));
  return map;
}

}  // namespace

void RegisterIntegerMatMul(OperatorRegistry& registry) {
  OperatorDef integer;
  integer.name = "MatMulInteger";
  integer.min_opset = 10;
  integer.min_inputs = 2;
  integer.max_inputs = 4;
  integer.input_types = {kMatMulTypes};
  integer.infer = [](InferContext& c) { return InferProduct(c, kMatMulInteger, DType::kInt32); };
  integer.axes = [](const InferContext& c) { return AxesOfIntegerMatmul(c, kMatMulInteger); };
  integer.compile = [](const CompileContext& c) {
    return CompileIntegerProduct(c, kMatMulInteger);
  };
  integer.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                             std::span<const TensorDesc> out) {
    return ProductMultiplyAdds(out[0], in[kMatMulInteger.a].shape.dims().back());
  };
  registry.Add(std::move(integer));

  OperatorDef quantized;
  quantized.name = "QLinearMatMul";
  quantized.min_opset = 10;
  quantized.min_inputs = quantized.max_inputs = 8;
  quantized.input_types = {kMatMulTypes, kScales,      kMatMulTypes, kMatMulTypes,
                           kScales,      kMatMulTypes, kScales,      kMatMulTypes};
  quantized.infer = [](InferContext& c) {
    return InferProduct(c, kQLinearMatMul, c.dtype(kQLinearMatMul.y_zero));
  };
  quantized.axes = [](const InferContext& c) { return AxesOfIntegerMatmul(c, kQLinearMatMul); };
  quantized.compile = [](const CompileContext& c) {
    return CompileIntegerProduct(c, kQLinearMatMul);
  };
  quantized.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                               std::span<const TensorDesc> out) {
    return ProductMultiplyAdds(out[0], in[kQLinearMatMul.a].shape.dims().back());
  };
  registry.Add(std::move(quantized));
}

}  // namespace chairlift
