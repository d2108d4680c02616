// chairlift::RaggedToken(x [T, ...], offsets, indices? [R]) -> y [R, ...]: token `index`
// (attribute) of each sequence, or token indices[r] of sequence r. Negative numbers count from the
// end. A sequence without such a token is an error unless it is empty.
#include <cstring>

#include "ops/ragged/ragged.h"

namespace chairlift {
namespace {

Status InferToken(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim sequences, SequencesOf(context, 1));
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, WithFirst(context, 0, sequences));
  if (context.has_input(2) && context.shape(2).has_rank()) {
    const SymbolicShape& indices = context.shape(2);
    if (indices.rank() != 1 ||
        (indices[0].known() && sequences.known() && indices[0].value() != sequences.value())) {
      return InvalidArgument("indices {} are not one for each of {} sequences", indices.ToString(),
                             sequences.ToString());
    }
  }
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileToken(const CompileContext& context) {
  const int64_t index = context.attributes.Int("index", 0);
  const Shape& shape = context.inputs[0].shape;
  const size_t row =
      static_cast<size_t>(shape.NumElements(1, shape.rank())) * DTypeSize(context.inputs[0].dtype);
  const bool each = context.has_input(2);
  if (each && context.inputs[2].shape != Shape{context.inputs[1].shape[0] - 1}) {
    return InvalidArgument("indices {} are not one for each of {} sequences",
                           context.inputs[2].shape.ToString(), context.inputs[1].shape[0] - 1);
  }
  return MakeKernel(
      [=, tokens = shape[0], desc = context.inputs[1]](const KernelArgs& args) -> Status {
        CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets, CheckedOffsets(args, 1, desc, tokens));
        const auto* indices = each ? static_cast<const int64_t*>(args.inputs[2]) : nullptr;
        const auto* x = static_cast<const std::byte*>(args.inputs[0]);
        auto* y = static_cast<std::byte*>(args.outputs[0]);
        for (size_t s = 0; s + 1 < offsets.size(); ++s, y += row) {
          const int64_t length = offsets[s + 1] - offsets[s];
          if (length == 0) {
            std::memset(y, 0, row);
            continue;
          }
          const int64_t wanted = each ? indices[s] : index;
          const int64_t at = wanted < 0 ? wanted + length : wanted;
          if (at < 0 || at >= length) {
            return InvalidArgument("sequence {} has {} tokens and no token {}", s, length, wanted);
          }
          std::memcpy(y, x + static_cast<size_t>(offsets[s] + at) * row, row);
        }
        return absl::OkStatus();
      });
}

}  // namespace

void RegisterRaggedToken(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "RaggedToken",
                .min_inputs = 2,
                .max_inputs = 3,
                .input_types = {kAllTypes, TypeSet{DType::kInt64}, TypeSet{DType::kInt64}},
                .infer = InferToken,
                .compile = CompileToken,
                .native_half = true});
}

}  // namespace chairlift
