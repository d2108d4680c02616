// Unique: the distinct slices along an axis (or elements of the flattened input), the first
// occurrence of each, the index for each input slice, and the number of occurrences.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "ops/axes.h"
#include "ops/reduction/reduction.h"

namespace chairlift {
namespace {

Status InferUnique(InferContext& context) {
  SymbolicShape out = SymbolicShape::OfRank(1);
  if (context.attributes().Has("axis")) {
    out = context.shape(0);
    if (out.has_rank()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                                 NormalizeAxis(context.attributes().Int("axis", 0), out.rank()));
      out[axis] = Dim::Unknown();
    }
  }
  context.set_output(0, context.dtype(0), std::move(out));
  for (int i = 1; i < context.num_outputs(); ++i) {
    context.set_output(i, DType::kInt64, SymbolicShape::OfRank(1));
  }
  return absl::OkStatus();
}

// NaN comes after every number; all NaN are equal.
template <typename T>
int Compare(T a, T b) {
  if (a < b) return -1;
  if (b < a) return 1;
  return (a != a) - (b != b);
}

// x as [outer, n, inner]: slice i is x[:, i, :].
struct Slices {
  int64_t outer, n, inner;
};

template <typename T>
std::vector<Tensor> UniqueOf(const T* x, const Slices& s, DType dtype, Shape shape, int axis,
                             bool sorted) {
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < s.outer; ++o) {
      const T* row = x + o * s.n * s.inner;
      for (int64_t i = 0; i < s.inner; ++i) {
        if (const int c = Compare(row[a * s.inner + i], row[b * s.inner + i]); c != 0) return c;
      }
    }
    return 0;
  };
  std::vector<int64_t> order(s.n);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  // Groups of equal slices; `first` is the first occurrence.
  std::vector<int64_t> first, group_of(s.n), counts;
  for (int64_t k = 0; k < s.n; ++k) {
    if (k == 0 || compare(order[k - 1], order[k]) != 0) {
      first.push_back(order[k]);
      counts.push_back(0);
    }
    group_of[order[k]] = static_cast<int64_t>(first.size()) - 1;
    ++counts.back();
  }
  const auto count = static_cast<int64_t>(first.size());
  if (!sorted) {
    std::vector<int64_t> by_first(count), rank(count), first_sorted(count), counts_sorted(count);
    std::iota(by_first.begin(), by_first.end(), int64_t{0});
    std::sort(by_first.begin(), by_first.end(),
              [&](int64_t a, int64_t b) { return first[a] < first[b]; });
    for (int64_t k = 0; k < count; ++k) {
      rank[by_first[k]] = k;
      first_sorted[k] = first[by_first[k]];
      counts_sorted[k] = counts[by_first[k]];
    }
    for (int64_t& g : group_of) g = rank[g];
    first = std::move(first_sorted);
    counts = std::move(counts_sorted);
  }
  shape[axis] = count;
  Tensor values = Tensor::Allocate(dtype, shape);
  T* to = static_cast<T*>(values.raw());
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t k = 0; k < count; ++k) {
      to = std::copy_n(x + (o * s.n + first[k]) * s.inner, s.inner, to);
    }
  }
  return {std::move(values), Tensor::Of<int64_t>({count}, first),
          Tensor::Of<int64_t>({s.n}, group_of), Tensor::Of<int64_t>({count}, counts)};
}

StatusOr<std::vector<Tensor>> EvaluateUnique(const EvaluateContext& context) {
  const Tensor& x = context.inputs[0];
  int axis = 0;
  Shape shape{x.size()};
  if (context.attributes.Has("axis")) {
    shape = x.shape();
    CHAIRLIFT_ASSIGN_OR_RETURN(axis,
                               NormalizeAxis(context.attributes.Int("axis", 0), shape.rank()));
  }
  const Slices slices{shape.NumElements(0, axis), shape[axis],
                      shape.NumElements(axis + 1, shape.rank())};
  const bool sorted = context.attributes.Int("sorted", 1) != 0;
  const DType as = x.dtype() == DType::kBool ? DType::kUInt8 : x.dtype();
  CHAIRLIFT_ASSIGN_OR_RETURN(
      std::vector<Tensor> out, DispatchNumeric(as, [&]<typename T>() {
        return StatusOr<std::vector<Tensor>>(
            UniqueOf(static_cast<const T*>(x.raw()), slices, x.dtype(), shape, axis, sorted));
      }));
  out.resize(context.num_outputs);
  return out;
}

}  // namespace

void RegisterUnique(OperatorRegistry& registry) {
  registry.Add({.name = "Unique",
                .min_opset = 11,
                .min_outputs = 1,
                .max_outputs = 4,
                .input_types = {kAllTypes},
                .infer = InferUnique,
                .evaluate = EvaluateUnique});
}

}  // namespace chairlift
