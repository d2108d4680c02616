// MatMul, and FusedMatMul: the same with transposes, scale, bias, residual and activation.
#include <algorithm>
#include <utility>

#include "ops/axis_map.h"
#include "ops/linear/linear.h"
#include "ops/linear/product.h"
#include "ops/multiply_adds.h"

namespace chairlift {
namespace {

StatusOr<Dim> BroadcastDim(const Dim& a, const Dim& b) {
  if (a.Same(b)) return a;
  if (a.known() && a.value() == 1) return b;
  if (b.known() && b.value() == 1) return a;
  if (a.known() && b.known()) {
    return InvalidArgument("batch dimensions {} and {} do not broadcast", a.ToString(),
                           b.ToString());
  }
  if (a.known()) return a;
  if (b.known()) return b;
  return Dim::Unknown();
}

struct Transposes {
  bool a = false;
  bool b = false;
};

Transposes TransposesOf(const Attributes& attributes) {
  return {attributes.Int("transpose_a", 0) != 0, attributes.Int("transpose_b", 0) != 0};
}

// The operand as a matrix: a vector is a row (A) or a column (B). Transposes swap the last two axes
// if there are two or more.
std::vector<Dim> MatrixDims(const SymbolicShape& shape, bool is_a, bool transposed) {
  std::vector<Dim> dims = shape.dims();
  if (dims.size() == 1)
    dims.insert(is_a ? dims.begin() : dims.end(), Dim(1));
  else if (transposed)
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return dims;
}

StatusOr<SymbolicShape> ProductShape(const InferContext& context, Transposes transposes) {
  const SymbolicShape& a = context.shape(0);
  const SymbolicShape& b = context.shape(1);
  if (context.dtype(0) != context.dtype(1)) {
    return InvalidArgument("A is {} but B is {}", DTypeName(context.dtype(0)),
                           DTypeName(context.dtype(1)));
  }
  if (!a.has_rank() || !b.has_rank()) return SymbolicShape();
  if (a.rank() == 0 || b.rank() == 0) return InvalidArgument("scalars have no matrix product");
  const std::vector<Dim> ad = MatrixDims(a, true, transposes.a);
  const std::vector<Dim> bd = MatrixDims(b, false, transposes.b);
  const Dim& ka = ad.back();
  const Dim& kb = bd[bd.size() - 2];
  if (ka.known() && kb.known() && ka.value() != kb.value()) {
    return InvalidArgument("inner dimensions differ: {} by {}", a.ToString(), b.ToString());
  }
  std::vector<Dim> out;
  const size_t batch_rank = std::max(ad.size(), bd.size()) - 2;
  for (size_t i = 0; i < batch_rank; ++i) {
    // Aligned at the end; missing axes are 1.
    const auto at = [&](const std::vector<Dim>& dims) {
      const size_t missing = batch_rank + 2 - dims.size();
      return i < missing ? Dim(1) : dims[i - missing];
    };
    CHAIRLIFT_ASSIGN_OR_RETURN(Dim dim, BroadcastDim(at(ad), at(bd)));
    out.push_back(std::move(dim));
  }
  if (a.rank() > 1) out.push_back(ad[ad.size() - 2]);
  if (b.rank() > 1) out.push_back(bd.back());
  return SymbolicShape(std::move(out));
}

// Offsets of an operand's matrices for every batch of the broadcast `batch` dimensions. `any`:
// whether the product has any elements.
std::vector<int64_t> BatchOffsets(const Shape& batch, std::span<const int64_t> operand_batch,
                                  int64_t matrix_size, bool any) {
  const int rank = batch.rank();
  const int missing = rank - static_cast<int>(operand_batch.size());
  std::vector<int64_t> strides(rank, 0);
  int64_t stride = matrix_size;
  for (int i = rank - 1; i >= missing; --i) {
    const int64_t dim = operand_batch[i - missing];
    strides[i] = dim == 1 ? 0 : stride;
    stride *= dim;
  }
  // If other axes are empty, these need not fit in memory; nothing is computed then.
  std::vector<int64_t> offsets(any ? static_cast<size_t>(batch.NumElements()) : 0);
  std::vector<int64_t> index(rank, 0);
  int64_t offset = 0;
  for (int64_t& out : offsets) {
    out = offset;
    for (int i = rank - 1; i >= 0; --i) {
      offset += strides[i];
      if (++index[i] < batch[i]) break;
      offset -= strides[i] * batch[i];
      index[i] = 0;
    }
  }
  return offsets;
}

Product MakeProduct(const CompileContext& context, Transposes transposes) {
  Shape a = context.inputs[0].shape;
  Shape b = context.inputs[1].shape;
  if (a.rank() == 1) {
    a.Insert(0, 1);
    transposes.a = false;
  }
  if (b.rank() == 1) {
    b.Append(1);
    transposes.b = false;
  }
  Product p;
  p.dtype = context.inputs[0].dtype;
  const int64_t a_rows = a[a.rank() - 2], a_columns = a[a.rank() - 1];
  const int64_t b_rows = b[b.rank() - 2], b_columns = b[b.rank() - 1];
  p.m = transposes.a ? a_columns : a_rows;
  p.k = transposes.a ? a_rows : a_columns;
  p.n = transposes.b ? b_rows : b_columns;
  p.a_row_stride = transposes.a ? 1 : a_columns;
  p.a_k_stride = transposes.a ? a_columns : 1;
  p.b_k_stride = transposes.b ? 1 : b_columns;
  p.b_n_stride = transposes.b ? b_columns : 1;
  const auto a_batch = a.dims().first(a.rank() - 2);
  const auto b_batch = b.dims().first(b.rank() - 2);
  Shape batch;
  const size_t rank = std::max(a_batch.size(), b_batch.size());
  for (size_t i = 0; i < rank; ++i) {
    const auto at = [&](std::span<const int64_t> dims) {
      return i + dims.size() < rank ? 1 : dims[i + dims.size() - rank];
    };
    batch.Append(at(a_batch) == 1 ? at(b_batch) : at(a_batch));
  }
  const bool any = context.outputs[0].size() > 0;
  p.a_offsets = BatchOffsets(batch, a_batch, a_rows * a_columns, any);
  p.b_offsets = BatchOffsets(batch, b_batch, b_rows * b_columns, any);
  return p;
}

Status InferMatMul(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, ProductShape(context, {}));
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileMatMul(const CompileContext& context) {
  return CompileProduct(MatMulProduct(context), context);
}

Status InferFusedMatMul(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape,
                             ProductShape(context, TransposesOf(context.attributes())));
  CHAIRLIFT_RETURN_IF_ERROR(Activation::Parse(context.attributes()).status());
  for (int i = 2; i < context.num_inputs(); ++i) {
    if (context.has_input(i) && context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {} but A is {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(0)));
    }
  }
  if (shape.concrete()) {
    const Shape out = shape.ToShape();
    if (context.has_input(2) && context.shape(2).concrete()) {
      const Shape& b = context.shape(2).ToShape();
      if (out.rank() == 0 || b.rank() != 1 || b[0] != out[out.rank() - 1]) {
        return InvalidArgument("the bias {} must be one value a column of {}", b.ToString(),
                               out.ToString());
      }
    }
    if (context.has_input(3) && context.shape(3).concrete() &&
        !(context.shape(3).ToShape() == out)) {
      return InvalidArgument("the residual {} must have the product's shape {}",
                             context.shape(3).ToString(), out.ToString());
    }
  }
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileFusedMatMul(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Product product, FusedMatMulProduct(context));
  return CompileProduct(std::move(product), context);
}

constexpr TypeSet kMatMulTypes =
    kFloatTypes | TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64};

}  // namespace

Product MatMulProduct(const CompileContext& context) { return MakeProduct(context, {}); }

StatusOr<Product> FusedMatMulProduct(const CompileContext& context) {
  Product p = MakeProduct(context, TransposesOf(context.attributes));
  p.alpha = context.attributes.Float("alpha", 1.0f);
  CHAIRLIFT_ASSIGN_OR_RETURN(p.activation, Activation::Parse(context.attributes));
  if (context.has_input(2)) p.bias_input = 2;
  if (context.has_input(3)) {
    p.residual_input = 3;
    p.residual_row_stride = p.n;
  }
  return p;
}

void RegisterMatMul(OperatorRegistry& registry) {
  OperatorDef matmul;
  matmul.name = "MatMul";
  matmul.min_inputs = matmul.max_inputs = 2;
  matmul.input_types = {kMatMulTypes};
  matmul.infer = InferMatMul;
  matmul.axes = [](const InferContext& context) { return ProductAxes(context, 0, 1); };
  matmul.compile = CompileMatMul;
  matmul.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                            std::span<const TensorDesc> out) {
    return ProductMultiplyAdds(out[0], in[0].shape.dims().back());
  };
  registry.Add(std::move(matmul));

  OperatorDef fused;
  fused.domain = "chairlift";
  fused.name = "FusedMatMul";
  fused.min_inputs = 2;
  fused.max_inputs = 4;
  fused.input_types = {kFloatTypes};
  fused.infer = InferFusedMatMul;
  fused.compile = CompileFusedMatMul;
  fused.multiply_adds = [](const Attributes& attributes, std::span<const TensorDesc> in,
                           std::span<const TensorDesc> out) {
    const auto dims = in[0].shape.dims();
    const bool transposed = TransposesOf(attributes).a && dims.size() > 1;
    return ProductMultiplyAdds(out[0], dims[dims.size() - (transposed ? 2 : 1)]);
  };
  registry.Add(std::move(fused));
}

}  // namespace chairlift
