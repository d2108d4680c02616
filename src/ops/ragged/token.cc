// chairlift::RaggedToken(x [T, ...], offsets) -> y [R, ...]: token `index` of each sequence,
// counted from its end if negative. A sequence without such a token is an error unless it is empty.
#include <cstring>

#include "ops/ragged/ragged.h"

namespace chairlift {
namespace {

Status InferToken(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim sequences, SequencesOf(context, 1));
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, WithFirst(context, 0, sequences));
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileToken(const CompileContext& context) {
  const int64_t index = context.attributes.Int("index", 0);
  const Shape& shape = context.inputs[0].shape;
  const size_t row =
      static_cast<size_t>(shape.NumElements(1, shape.rank())) * DTypeSize(context.inputs[0].dtype);
  return MakeKernel(
      [=, tokens = shape[0], desc = context.inputs[1]](const KernelArgs& args) -> Status {
        CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets, CheckedOffsets(args, 1, desc, tokens));
        const auto* x = static_cast<const std::byte*>(args.inputs[0]);
        auto* y = static_cast<std::byte*>(args.outputs[0]);
        for (size_t s = 0; s + 1 < offsets.size(); ++s, y += row) {
          const int64_t length = offsets[s + 1] - offsets[s];
          if (length == 0) {
            std::memset(y, 0, row);
            continue;
          }
          const int64_t at = index < 0 ? index + length : index;
          if (at < 0 || at >= length) {
            return InvalidArgument("sequence {} has {} tokens and no token {}", s, length, index);
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
                .max_inputs = 2,
                .input_types = {kAllTypes, TypeSet{DType::kInt64}},
                .infer = InferToken,
                .compile = CompileToken,
                .native_half = true});
}

}  // namespace chairlift
