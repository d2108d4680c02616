// Where: elementwise the second operand if the first is true, else the third.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

template <typename T, bool kCondition, bool kX, bool kY>
void Row(const uint8_t* condition, const T* x, const T* y, T* out, int64_t n) {
  const T sx = *x;
  const T sy = *y;
  for (int64_t i = 0; i < n; ++i) {
    const T a = kX ? sx : x[i];
    const T b = kY ? sy : y[i];
    out[i] = condition[kCondition ? 0 : i] != 0 ? a : b;
  }
}

template <typename T>
void WhereBlock(const ElementBlock& b) {
  using RowFn = void (*)(const uint8_t*, const T*, const T*, T*, int64_t);
  constexpr RowFn kRows[] = {Row<T, false, false, false>, Row<T, false, false, true>,
                             Row<T, false, true, false>,  Row<T, false, true, true>,
                             Row<T, true, false, false>,  Row<T, true, false, true>,
                             Row<T, true, true, false>,   Row<T, true, true, true>};
  const RowFn row =
      kRows[(b.col_step[0] == 0) * 4 + (b.col_step[1] == 0) * 2 + (b.col_step[2] == 0)];
  for (int64_t r = 0; r < b.rows; ++r) {
    row(static_cast<const uint8_t*>(b.in[0]) + r * b.row_step[0],
        static_cast<const T*>(b.in[1]) + r * b.row_step[1],
        static_cast<const T*>(b.in[2]) + r * b.row_step[2], static_cast<T*>(b.out) + r * b.cols,
        b.cols);
  }
}

// A shape selected by a known condition.
void InferElements(InferContext& context) {
  const Tensor* condition = context.value(0);
  const auto x = ShapeElements(context, 1);
  const auto y = ShapeElements(context, 2);
  const SymbolicShape& shape = context.outputs()[0].shape;
  if (condition == nullptr || !x || !y || !shape.has_rank() || shape.rank() > 1) return;
  const auto chosen = static_cast<size_t>(condition->size());
  const size_t count = std::max({chosen, x->size(), y->size()});
  for (size_t size : {chosen, x->size(), y->size()}) {
    if (size != count && size != 1) return;
  }
  const auto* choice = static_cast<const uint8_t*>(condition->raw());
  std::vector<Dim> elements;
  for (size_t i = 0; i < count; ++i) {
    const auto& from = choice[chosen == 1 ? 0 : i] != 0 ? *x : *y;
    elements.push_back(from[from.size() == 1 ? 0 : i]);
  }
  context.set_output_elements(0, std::move(elements));
}

Status InferWhere(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(InferBroadcast(context, context.dtype(1), 1));
  if (context.dtype(0) != DType::kBool) {
    return InvalidArgument("the condition has element type {}, not bool",
                           DTypeName(context.dtype(0)));
  }
  InferElements(context);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileWhere(const CompileContext& context) {
  if (context.inputs[1].dtype == DType::kBytes) {
    return MakeElementKernel(context, WhereBlock<std::string_view>);
  }
  return DispatchWidth(context.inputs[1].dtype,
                       [&]<typename T>() { return MakeElementKernel(context, WhereBlock<T>); });
}

}  // namespace

void RegisterWhere(OperatorRegistry& registry) {
  registry.Add({.name = "Where",
                .min_opset = 9,
                .min_inputs = 3,
                .max_inputs = 3,
                .input_types = {kBoolType, kMovableTypes},
                .infer = InferWhere,
                .axes = ElementwiseAxes,
                .compile = CompileWhere,
                .in_place = true,
                .layout_agnostic = true,
                .native_half = true});
}

}  // namespace chairlift
