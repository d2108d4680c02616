// chairlift::RaggedSpread(x [R, ...], offsets, like [T, ...]) -> y [T, ...]: for each token the row
// of its sequence. Only T is taken from `like`.
#include <cstring>

#include "ops/ragged/ragged.h"

namespace chairlift {
namespace {

Status InferSpread(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim sequences, SequencesOf(context, 1));
  const SymbolicShape& x = context.shape(0);
  if (x.has_rank() && x.rank() > 0 && x[0].known() && sequences.known() &&
      x[0].value() != sequences.value()) {
    return InvalidArgument("there are {} rows for {} sequences", x[0].value(), sequences.value());
  }
  const SymbolicShape& like = context.shape(2);
  if (like.has_rank() && like.rank() == 0) return InvalidArgument("input 2 is a scalar");
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape,
                             WithFirst(context, 0, like.has_rank() ? like[0] : Dim::Unknown()));
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileSpread(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  const size_t row =
      static_cast<size_t>(shape.NumElements(1, shape.rank())) * DTypeSize(context.inputs[0].dtype);
  return MakeKernel([=, tokens = context.inputs[2].shape[0],
                     desc = context.inputs[1]](const KernelArgs& args) -> Status {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets, CheckedOffsets(args, 1, desc, tokens));
    const auto* x = static_cast<const std::byte*>(args.inputs[0]);
    auto* y = static_cast<std::byte*>(args.outputs[0]);
    for (size_t s = 0; s + 1 < offsets.size(); ++s, x += row) {
      for (int64_t t = offsets[s]; t < offsets[s + 1]; ++t, y += row) std::memcpy(y, x, row);
    }
    std::memset(y, 0, static_cast<size_t>(tokens - offsets.back()) * row);
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterRaggedSpread(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "RaggedSpread",
                .min_inputs = 3,
                .max_inputs = 3,
                .input_types = {kAllTypes, TypeSet{DType::kInt64}, kAllTypes},
                .infer = InferSpread,
                .compile = CompileSpread,
                .native_half = true});
}

}  // namespace chairlift
