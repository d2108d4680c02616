// Shape and Size: the dimensions of a tensor as data, with symbols.
#include <algorithm>
#include <vector>

#include "ops/axes.h"
#include "ops/generation/generation.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

// The requested range of dimensions, clamped to [0, rank].
std::pair<int, int> DimRange(const Attributes& attributes, int rank) {
  const auto hold = [rank](int64_t i) {
    return static_cast<int>(std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank));
  };
  const int start = hold(attributes.Int("start", 0));
  const int end = attributes.Has("end") ? hold(attributes.Int("end", rank)) : rank;
  return {start, std::max(start, end)};
}

Status InferShape(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  if (!shape.has_rank()) {
    context.set_output(0, DType::kInt64, SymbolicShape::OfRank(1));
    return absl::OkStatus();
  }
  const auto [start, end] = DimRange(context.attributes(), shape.rank());
  context.set_output(0, DType::kInt64, SymbolicShape(Shape{end - start}));
  context.set_output_elements(
      0, std::vector<Dim>(shape.dims().begin() + start, shape.dims().begin() + end));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileShape(const CompileContext& context) {
  const Shape shape = context.inputs[0].shape;
  const auto [start, end] = DimRange(context.attributes, shape.rank());
  return MakeKernel([shape, start = start, end = end](const KernelArgs& args) {
    std::copy(shape.begin() + start, shape.begin() + end, static_cast<int64_t*>(args.outputs[0]));
    return absl::OkStatus();
  });
}

Status InferSize(InferContext& context) {
  context.set_output(0, DType::kInt64, SymbolicShape::Scalar());
  if (context.shape(0).has_rank()) {
    context.set_output_elements(0, {Product(context.shape(0).dims())});
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileSize(const CompileContext& context) {
  return MakeKernel([size = context.inputs[0].size()](const KernelArgs& args) {
    *static_cast<int64_t*>(args.outputs[0]) = size;
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterShape(OperatorRegistry& registry) {
  registry.Add({.name = "Shape",
                .input_types = {kMovableTypes},
                .infer = InferShape,
                .compile = CompileShape,
                .native_half = true,
                .gives_sizes = true});
  registry.Add({.name = "Size",
                .input_types = {kMovableTypes},
                .infer = InferSize,
                .compile = CompileSize,
                .native_half = true,
                .gives_sizes = true});
}

}  // namespace chairlift
