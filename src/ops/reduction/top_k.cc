// TopK: the k largest (or smallest) elements along an axis, and their indices.
//
// Ties are in order of index. NaN counts as larger than any number. Results are always sorted.
#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/reduction/reduction.h"

namespace chairlift {
namespace {

Status InferTopK(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  std::optional<int64_t> k;
  if (auto known = context.known_elements(1)) {
    if (known->size() != 1) return InvalidArgument("K has {} elements, not 1", known->size());
    k = (*known)[0];
    if (*k < 0) return InvalidArgument("K is {}", *k);
  }
  SymbolicShape out = shape;
  if (shape.has_rank()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                               NormalizeAxis(context.attributes().Int("axis", -1), shape.rank()));
    if (k && shape[axis].known() && *k > shape[axis].value()) {
      return InvalidArgument("K is {}, but axis {} has {} elements", *k, axis, shape[axis].value());
    }
    out[axis] = k ? Dim(*k) : Dim::Unknown();
    if (const auto elements = ShapeElements(context, 1); !k && elements && elements->size() == 1) {
      out[axis] = (*elements)[0];
    }
  }
  context.set_output(0, context.dtype(0), out);
  if (context.num_outputs() > 1) context.set_output(1, DType::kInt64, std::move(out));
  return absl::OkStatus();
}

template <typename T>
bool Less(T a, T b) {
  return a < b || (b != b && a == a);
}

template <typename T>
StatusOr<std::unique_ptr<Kernel>> CompileForTopK(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const int64_t outer = shape.NumElements(0, axis);
  const int64_t inner = shape.NumElements(axis + 1, shape.rank());
  const int64_t n = shape[axis];
  const int64_t k = context.outputs[0].shape[axis];
  if (k > n) return InvalidArgument("K is {}, but axis {} has {} elements", k, axis, n);
  const bool largest = context.attributes.Int("largest", 1) != 0;
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(context.width, outer * inner));
  const auto run = [=](const KernelArgs& args) {
    const T* x = static_cast<const T*>(args.inputs[0]);
    T* values = static_cast<T*>(args.outputs[0]);
    auto* places = args.outputs.size() > 1 ? static_cast<int64_t*>(args.outputs[1]) : nullptr;
    const int64_t lines = outer * inner;
    args.team.For(static_cast<int>(parts), [&](int part, int) {
      int64_t* order = static_cast<int64_t*>(args.scratch) + part * n;
      for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
        const T* from = x + line / inner * n * inner + line % inner;
        const int64_t to = line / inner * k * inner + line % inner;
        std::iota(order, order + n, int64_t{0});
        std::partial_sort(order, order + k, order + n, [&](int64_t a, int64_t b) {
          const T va = from[a * inner];
          const T vb = from[b * inner];
          if (largest ? Less(vb, va) : Less(va, vb)) return true;
          if (largest ? Less(va, vb) : Less(vb, va)) return false;
          return a < b;
        });
        for (int64_t i = 0; i < k; ++i) {
          if (values != nullptr) values[to + i * inner] = from[order[i] * inner];
          if (places != nullptr) places[to + i * inner] = order[i];
        }
      }
    });
    return absl::OkStatus();
  };
  return MakeKernel(run, static_cast<size_t>(parts * n) * sizeof(int64_t));
}

StatusOr<std::unique_ptr<Kernel>> CompileTopK(const CompileContext& context) {
  return DispatchNumeric(context.inputs[0].dtype,
                         [&]<typename T>() { return CompileForTopK<T>(context); });
}

}  // namespace

void RegisterTopK(OperatorRegistry& registry) {
  registry.Add({.name = "TopK",
                .min_inputs = 2,
                .max_inputs = 2,
                .min_outputs = 1,
                .max_outputs = 2,
                .input_types = {kNumericTypes, TypeSet{DType::kInt64}},
                .infer = InferTopK,
                .axes = AxesButOne<-1>,
                .compile = CompileTopK});
}

}  // namespace chairlift
