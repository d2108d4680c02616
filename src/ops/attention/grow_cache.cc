// chairlift::GrowCache(past, added, lengths, total) -> present: keys or values of earlier tokens,
// followed by those of new ones.
//
// past is [batch, heads, P, columns], added [batch, heads, S, columns], present [batch, heads, P +
// S, columns]. `lengths`, int32 [batch] or [batch, 1], is P + S − 1 in every row, and `total`, of
// one element, P + S. They are inputs of com.microsoft.GroupQueryAttention, where other values
// would mean other positions.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/attention/attention_operators.h"
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

Status InferGrowCache(InferContext& context) {
  std::vector<Dim> dims(4, Dim::Unknown());
  const SymbolicShape& past = context.shape(0);
  const SymbolicShape& added = context.shape(1);
  for (int i = 0; i < 2; ++i) {
    const SymbolicShape& shape = context.shape(i);
    if (shape.has_rank() && shape.rank() != 4) {
      return InvalidArgument("input {} has rank {}, not 4", i, shape.rank());
    }
  }
  for (int axis = 0; axis < 4; ++axis) {
    const Dim a = past.has_rank() ? past[axis] : Dim::Unknown();
    const Dim b = added.has_rank() ? added[axis] : Dim::Unknown();
    if (axis == 2) {
      if (!a.known() || !b.known()) continue;
      if (a.value() > std::numeric_limits<int64_t>::max() - b.value()) {
        return InvalidArgument("the past {} and what is added {} are too long", past.ToString(),
                               added.ToString());
      }
      dims[2] = Dim(a.value() + b.value());
      continue;
    }
    if (a.known() && b.known() && a.value() != b.value()) {
      return InvalidArgument("the past {} and what is added {} differ in dimension {}",
                             past.ToString(), added.ToString(), axis);
    }
    dims[static_cast<size_t>(axis)] = MergeDims(a, b);
  }
  return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(dims)));
}

StatusOr<std::unique_ptr<Kernel>> CompileGrowCache(const CompileContext& context) {
  const Shape& past = context.inputs[0].shape;
  const Shape& added = context.inputs[1].shape;
  const int64_t rows = context.inputs[2].size();
  if (past.rank() != 4 || added.rank() != 4 || past[0] != added[0] || past[1] != added[1] ||
      past[3] != added[3]) {
    return InvalidArgument("the past {} and what is added {} do not fit each other",
                           past.ToString(), added.ToString());
  }
  if (rows != past[0] || context.inputs[3].size() != 1) {
    return InvalidArgument("lengths of {} rows and {} totals do not fit a batch of {}", rows,
                           context.inputs[3].size(), past[0]);
  }
  const int64_t units = past[0] * past[1];
  const int64_t old_bytes = past[2] * past[3] * static_cast<int64_t>(sizeof(float));
  const int64_t new_bytes = added[2] * added[3] * static_cast<int64_t>(sizeof(float));
  const int64_t before = past[2], all = past[2] + added[2];
  return MakeKernel([=](const KernelArgs& args) -> Status {
    const auto* lengths = static_cast<const int32_t*>(args.inputs[2]);
    const int32_t total = *static_cast<const int32_t*>(args.inputs[3]);
    for (int64_t b = 0; b < rows; ++b) {
      if (lengths[b] == all - 1 && total == all) continue;
      return InvalidArgument(
          "seqlens_k has {} in row {} and total_sequence_length is {}, where there are {} earlier "
          "and {} new tokens: supported are {} and {}, that is rows of one length and a past that "
          "has no room left",
          lengths[b], b, total, before, all - before, all - 1, all);
    }
    const auto* old_ones = static_cast<const std::byte*>(args.inputs[0]);
    const auto* new_ones = static_cast<const std::byte*>(args.inputs[1]);
    auto* out = static_cast<std::byte*>(args.outputs[0]);
    constexpr int64_t kWorthSharing = int64_t{256} << 10;  // bytes
    ForRanges(args.team, units, units * (old_bytes + new_bytes), kWorthSharing,
              [&](int64_t first, int64_t last) {
                for (int64_t unit = first; unit < last; ++unit) {
                  std::byte* to = out + unit * (old_bytes + new_bytes);
                  to = std::copy_n(old_ones + unit * old_bytes, old_bytes, to);
                  std::copy_n(new_ones + unit * new_bytes, new_bytes, to);
                }
              });
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterGrowCache(OperatorRegistry& registry) {
  constexpr TypeSet kTypes = kHalfTypes | TypeSet{DType::kFloat};
  registry.Add({.domain = "chairlift",
                .name = "GrowCache",
                .min_inputs = 4,
                .max_inputs = 4,
                .input_types = {kTypes, kTypes, TypeSet{DType::kInt32}, TypeSet{DType::kInt32}},
                .infer = InferGrowCache,
                .axes = FirstAxis<0, 1, 2>,
                .compile = CompileGrowCache});
}

}  // namespace chairlift
