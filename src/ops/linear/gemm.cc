// Gemm: alpha · A'·B' + beta · C.
#include <utility>

#include "ops/axis_map.h"
#include "ops/linear/linear.h"
#include "ops/linear/product.h"
#include "ops/multiply_adds.h"

namespace chairlift {
namespace {

Status InferGemm(InferContext& context) {
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (context.has_input(i) && context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {} but A is {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(0)));
    }
  }
  Dim mk[2][2];
  const char* const names[] = {"transA", "transB"};
  for (int i = 0; i < 2; ++i) {
    const SymbolicShape& shape = context.shape(i);
    if (!shape.has_rank()) continue;
    if (shape.rank() != 2) {
      return InvalidArgument("input {} {} must be a matrix", i, shape.ToString());
    }
    const bool transposed = context.attributes().Int(names[i], 0) != 0;
    mk[i][0] = shape[transposed ? 1 : 0];
    mk[i][1] = shape[transposed ? 0 : 1];
  }
  const Dim &m = mk[0][0], &ka = mk[0][1], &kb = mk[1][0], &n = mk[1][1];
  if (ka.known() && kb.known() && ka.value() != kb.value()) {
    return InvalidArgument("inner dimensions differ: {} by {}", context.shape(0).ToString(),
                           context.shape(1).ToString());
  }
  if (context.has_input(2) && context.shape(2).has_rank()) {
    const SymbolicShape& c = context.shape(2);
    if (c.rank() > 2) return InvalidArgument("C {} has more than two axes", c.ToString());
    const Dim* const out[] = {&n, &m};
    for (int i = 0; i < c.rank(); ++i) {
      const Dim& dim = c[c.rank() - 1 - i];
      if (dim.known() && dim.value() != 1 && out[i]->known() && out[i]->value() != dim.value()) {
        return InvalidArgument("C {} does not broadcast to [{},{}]", c.ToString(), m.ToString(),
                               n.ToString());
      }
    }
  }
  context.set_output(0, context.dtype(0), SymbolicShape({m, n}));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileGemm(const CompileContext& context) {
  return CompileProduct(GemmProduct(context), context);
}

StatusOr<AxisMap> AxesOfGemm(const InferContext& context) {
  constexpr int kRows = 0, kColumns = 1;
  AxisMap map = MakeAxisMap(context);
  const auto matrix = [&](const char* transposed, int rows, int columns) {
    if (context.attributes().Int(transposed, 0) != 0) std::swap(rows, columns);
    return AxisMap::Operand{.labels = {rows, columns}};
  };
  map.inputs[0] = matrix("transA", kRows, AxisMap::kNone);
  map.inputs[1] = matrix("transB", AxisMap::kNone, kColumns);
  map.outputs[0].labels = {kRows, kColumns};
  if (context.has_input(2)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 2));
    map.inputs[2].broadcasts = true;
    for (int axis = 2 - rank; axis < 2; ++axis) map.inputs[2].labels.push_back(axis);
  }
  return map;
}

}  // namespace

Product GemmProduct(const CompileContext& context) {
  const Shape& a = context.inputs[0].shape;
  const Shape& b = context.inputs[1].shape;
  const bool trans_a = context.attributes.Int("transA", 0) != 0;
  const bool trans_b = context.attributes.Int("transB", 0) != 0;
  Product p;
  p.dtype = context.inputs[0].dtype;
  p.m = a[trans_a ? 1 : 0];
  p.k = a[trans_a ? 0 : 1];
  p.n = b[trans_b ? 0 : 1];
  p.a_row_stride = trans_a ? 1 : a[1];
  p.a_k_stride = trans_a ? a[1] : 1;
  p.b_k_stride = trans_b ? 1 : b[1];
  p.b_n_stride = trans_b ? b[1] : 1;
  p.a_offsets = p.b_offsets = {0};
  p.alpha = context.attributes.Float("alpha", 1.0f);
  const float beta = context.attributes.Float("beta", 1.0f);
  if (context.has_input(2) && beta != 0.0f) {
    const Shape& c = context.inputs[2].shape;
    const int64_t columns = c.rank() >= 1 ? c[c.rank() - 1] : 1;
    const int64_t rows = c.rank() == 2 ? c[0] : 1;
    if (rows == 1 && columns == p.n && beta == 1.0f) {
      p.bias_input = 2;
    } else {
      p.residual_input = 2;
      p.residual_scale = beta;
      p.residual_row_stride = rows == 1 ? 0 : columns;
      p.residual_column_stride = columns == 1 && p.n != 1 ? 0 : 1;
    }
  }
  return p;
}

void RegisterGemm(OperatorRegistry& registry) {
  OperatorDef gemm;
  gemm.name = "Gemm";
  gemm.min_inputs = 2;
  gemm.max_inputs = 3;
  gemm.input_types = {kFloatTypes |
                      TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64}};
  gemm.infer = InferGemm;
  gemm.axes = AxesOfGemm;
  gemm.compile = CompileGemm;
  gemm.multiply_adds = [](const Attributes& attributes, std::span<const TensorDesc> in,
                          std::span<const TensorDesc> out) {
    return ProductMultiplyAdds(out[0], in[0].shape[attributes.Int("transA", 0) != 0 ? 0 : 1]);
  };
  registry.Add(std::move(gemm));
}

}  // namespace chairlift
