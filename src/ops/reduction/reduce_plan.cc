// The shape rule and loop nest of reductions.
#include "ops/reduction/reduce_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/axes.h"

namespace chairlift {

StatusOr<std::vector<int>> ReduceAxes(const Attributes& attributes,
                                      std::optional<std::span<const int64_t>> axes, int rank) {
  if (axes && !axes->empty()) return NormalizeAxes(*axes, rank);
  std::vector<int> all;
  if (attributes.Int("noop_with_empty_axes", 0) == 0) {
    all.resize(rank);
    std::iota(all.begin(), all.end(), 0);
  }
  return all;
}

Status InferReduce(InferContext& context) {
  const bool keep = context.attributes().Int("keepdims", 1) != 0;
  const SymbolicShape& shape = context.shape(0);
  context.set_output(0, context.dtype(0), SymbolicShape());
  if (!shape.has_rank()) return absl::OkStatus();
  std::optional<std::vector<int64_t>> values;
  if (context.has_input(1)) {
    if (context.dtype(1) != DType::kInt64) return InvalidArgument("axes must be int64");
    values = context.known_elements(1);
    if (!values) {
      // The folded axes are known only at run time.
      if (keep) context.set_output(0, context.dtype(0), SymbolicShape::OfRank(shape.rank()));
      return absl::OkStatus();
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                             ReduceAxes(context.attributes(), values, shape.rank()));
  std::vector<bool> folded(shape.rank(), false);
  for (int a : axes) folded[a] = true;
  std::vector<Dim> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!folded[i]) {
      dims.push_back(shape[i]);
    } else if (keep) {
      dims.emplace_back(1);
    }
  }
  context.set_output(0, context.dtype(0), SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

ReducePlan MakeReducePlan(const Shape& input, std::span<const int> axes) {
  std::vector<bool> folded(input.rank(), false);
  for (int a : axes) folded[a] = true;
  ReducePlan plan;
  bool has_inner = false;
  bool last_folded = false;  // of the last extended run
  bool in_inner = false;     // whether that run is the innermost
  int64_t stride = 1;
  for (int i = input.rank() - 1; i >= 0; --i) {
    (folded[i] ? plan.fold_count : plan.size) *= input[i];
    if (input[i] == 1) continue;
    auto& dims = folded[i] ? plan.folded_dims : plan.kept_dims;
    auto& strides = folded[i] ? plan.folded_strides : plan.kept_strides;
    if (!has_inner || (in_inner && folded[i] == last_folded)) {
      plan.inner *= input[i];
      plan.inner_folded = folded[i];
      has_inner = in_inner = true;
    } else if (!in_inner && folded[i] == last_folded) {
      dims.back() *= input[i];
    } else {
      dims.push_back(input[i]);
      strides.push_back(stride);
      in_inner = false;
    }
    last_folded = folded[i];
    stride *= input[i];
  }
  for (int64_t d : plan.kept_dims) plan.outer *= d;
  for (auto* v : {&plan.kept_dims, &plan.kept_strides, &plan.folded_dims, &plan.folded_strides}) {
    std::reverse(v->begin(), v->end());
  }
  return plan;
}

int64_t ReducePlan::OuterOffset(int64_t k) const {
  int64_t offset = 0;
  for (int i = static_cast<int>(kept_dims.size()) - 1; i >= 0; --i) {
    offset += k % kept_dims[i] * kept_strides[i];
    k /= kept_dims[i];
  }
  return offset;
}

void ReducePlan::ForEachFolded(absl::FunctionRef<void(int64_t, int64_t, int64_t)> body) const {
  if (fold_count == 0) return;
  const int rank = static_cast<int>(folded_dims.size());
  const int64_t rows = rank == 0 ? 1 : folded_dims[rank - 1];
  const int64_t stride = rank == 0 ? 0 : folded_strides[rank - 1];
  int64_t outer_places = 1;
  for (int i = 0; i + 1 < rank; ++i) outer_places *= folded_dims[i];
  for (int64_t p = 0; p < outer_places; ++p) {
    int64_t offset = 0;
    int64_t rest = p;
    for (int i = rank - 2; i >= 0; --i) {
      offset += rest % folded_dims[i] * folded_strides[i];
      rest /= folded_dims[i];
    }
    body(offset, rows, stride);
  }
}

}  // namespace chairlift
