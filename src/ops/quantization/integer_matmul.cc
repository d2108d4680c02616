// MatMulInteger and QLinearMatMul: batched products of 8-bit matrices, zero points by matrix, row
// of A or column of B.
#include <algorithm>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/broadcast.h"
#include "ops/quantization/integer_product.h"
#include "ops/quantization/quantization.h"

namespace chairlift {
namespace {

// Where an operator has its operands; −1 where it has none such.
struct Places {
  int a = 0, b = 1, a_zero = 2, b_zero = 3;
  int a_scale = -1, b_scale = -1, y_scale = -1, y_zero = -1;
};
constexpr Places kInteger{};
constexpr Places kQuantized{0, 3, 2, 5, 1, 4, 6, 7};

// The dimensions of a matrix product, A [batches..., m, k] by B [batches..., k, n].
struct Matrices {
  std::vector<int64_t> batch, a_batch, b_batch;  // dimensions
  int64_t m = 0, n = 0, k = 0;

  static int64_t Product(const std::vector<int64_t>& dims) {
    int64_t p = 1;
    for (int64_t d : dims) p *= d;
    return p;
  }
  // Which matrix of an operand takes part in matrix `index` of the output.
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

// A scale or zero point: one, or one a row of A (column of B), for all matrices or each.
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

Status InferProduct(InferContext& context, const Places& at, DType output) {
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

// Entries of a parameter, and whether every matrix has its own.
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
  ZeroPoints Zeros(const KernelArgs& args, bool is_signed, int64_t matrix) const {
    if (input < 0) return {};
    return {static_cast<const int8_t*>(args.inputs[input]) + matrix * matrix_stride, is_signed,
            stride};
  }
  const float* Scales(const KernelArgs& args, int64_t matrix) const {
    return static_cast<const float*>(args.inputs[input]) + matrix * matrix_stride;
  }
};

StatusOr<std::unique_ptr<Kernel>> CompileProduct(const CompileContext& context, const Places& at) {
  const Matrices p = MatricesOf(context.inputs[at.a].shape, context.inputs[at.b].shape);
  const int64_t a_count = Matrices::Product(p.a_batch);
  const int64_t b_count = Matrices::Product(p.b_batch);
  const bool a_signed = context.inputs[at.a].dtype == DType::kInt8;
  const bool b_signed = context.inputs[at.b].dtype == DType::kInt8;
  const auto a_zero = Parameter::Of(context, at.a_zero, p.m, a_count);
  const auto b_zero = Parameter::Of(context, at.b_zero, p.n, b_count);
  const auto a_scale = Parameter::Of(context, at.a_scale, p.m, a_count);
  const auto b_scale = Parameter::Of(context, at.b_scale, p.n, b_count);
  const bool y_signed = context.outputs[0].dtype == DType::kInt8;
  const int64_t product_scratch = (IntegerProductScratch(p.n, p.k) + 63) / 64 * 64;
  const int64_t sums_scratch = at.y_scale < 0 ? 0 : p.m * p.n * 4;

  return MakeKernel(
      [=](const KernelArgs& args) -> Status {
        auto* scratch = static_cast<std::byte*>(args.scratch);
        auto* y = static_cast<std::byte*>(args.outputs[0]);
        const int64_t count = Matrices::Product(p.batch);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t ai = p.Operand(p.a_batch, i);
          const int64_t bi = p.Operand(p.b_batch, i);
          const ByteMatrix a{static_cast<const std::byte*>(args.inputs[at.a]) + ai * p.m * p.k,
                             a_signed, p.k, 1};
          const ByteMatrix b{static_cast<const std::byte*>(args.inputs[at.b]) + bi * p.k * p.n,
                             b_signed, p.n, 1};
          auto* sums = reinterpret_cast<int32_t*>(at.y_scale < 0 ? y + i * p.m * p.n * 4
                                                                 : scratch + product_scratch);
          IntegerProduct(a, a_zero.Zeros(args, a_signed, ai), b, b_zero.Zeros(args, b_signed, bi),
                         p.m, p.n, p.k, sums, scratch);
          if (at.y_scale < 0) continue;
          const float y_scale = *static_cast<const float*>(args.inputs[at.y_scale]);
          const ZeroPoints y_zero{args.inputs[at.y_zero], y_signed, 0};
          const float* a_scales = a_scale.Scales(args, ai);
          const float* b_scales = b_scale.Scales(args, bi);
          for (int64_t r = 0; r < p.m; ++r) {
            const float row_scale = a_scales[r * a_scale.stride];
            std::byte* row = y + (i * p.m + r) * p.n;
            // One call a row where B has one scale, else one a column.
            const int64_t step = b_scale.stride == 0 ? std::max<int64_t>(p.n, 1) : 1;
            for (int64_t c = 0; c < p.n; c += step) {
              Requantize(sums + r * p.n + c, step,
                         row_scale * b_scales[c * b_scale.stride] / y_scale, y_zero[0], y_signed,
                         row + c);
            }
          }
        }
        return {};
      },
      static_cast<size_t>(product_scratch + sums_scratch));
}

constexpr TypeSet kBytes{DType::kInt8, DType::kUInt8};
constexpr TypeSet kScales = kHalfTypes | TypeSet{DType::kFloat};

}  // namespace

void RegisterIntegerMatMul(OperatorRegistry& registry) {
  OperatorDef integer;
  integer.name = "MatMulInteger";
  integer.min_opset = 10;
  integer.min_inputs = 2;
  integer.max_inputs = 4;
  integer.input_types = {kBytes};
  integer.infer = [](InferContext& c) { return InferProduct(c, kInteger, DType::kInt32); };
  integer.compile = [](const CompileContext& c) { return CompileProduct(c, kInteger); };
  registry.Add(std::move(integer));

  OperatorDef quantized;
  quantized.name = "QLinearMatMul";
  quantized.min_opset = 10;
  quantized.min_inputs = quantized.max_inputs = 8;
  quantized.input_types = {kBytes, kScales, kBytes, kBytes, kScales, kBytes, kScales, kBytes};
  quantized.infer = [](InferContext& c) {
    return InferProduct(c, kQuantized, c.dtype(kQuantized.y_zero));
  };
  quantized.compile = [](const CompileContext& c) { return CompileProduct(c, kQuantized); };
  registry.Add(std::move(quantized));
}

}  // namespace chairlift
