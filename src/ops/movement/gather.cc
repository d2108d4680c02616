// Gather: out[a.., i.., b..] = data[a.., indices[i..], b..].
#include <cstring>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/indices.h"
#include "ops/movement/movement.h"
#include "ops/movement/strided_copy.h"
#include "ops/ranges.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

Status InferGather(InferContext& context) {
  const SymbolicShape& data = context.shape(0);
  const SymbolicShape& indices = context.shape(1);
  if (!data.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  if (data.rank() == 0) return InvalidArgument("data must have rank 1 or more");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes().Int("axis", 0), data.rank()));
  if (!indices.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  SymbolicShape out = SymbolicShape::Scalar();
  for (int d = 0; d < axis; ++d) out.Append(data[d]);
  for (const Dim& d : indices.dims()) out.Append(d);
  for (int d = axis + 1; d < data.rank(); ++d) out.Append(data[d]);
  const bool shape_like = data.rank() == 1 && indices.rank() <= 1;
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, context.dtype(0), std::move(out)));
  if (!shape_like) return absl::OkStatus();
  const auto elements = ShapeElements(context, 0);
  const auto wanted = context.known_elements(1);
  if (!elements || !wanted || wanted->size() > static_cast<size_t>(kMaxRank)) {
    return absl::OkStatus();
  }
  const auto bound = static_cast<int64_t>(elements->size());
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckIndices(wanted->data(), static_cast<int64_t>(wanted->size()), bound));
  std::vector<Dim> taken;
  for (int64_t i : *wanted) taken.push_back((*elements)[WrapIndex(i, bound)]);
  context.set_output_elements(0, std::move(taken));
  return absl::OkStatus();
}

struct GatherSizes {
  int64_t outer;    // product of the dimensions before the axis
  int64_t bound;    // size of the axis
  int64_t indices;  // number of indices
  int64_t run;      // bytes per index after the axis
};

// Rows [first, last) of the outer × indices rows of the output.
template <typename Index, typename Copy>
void GatherRows(const GatherSizes& s, const char* data, const Index* indices, char* out,
                int64_t first, int64_t last, Copy copy) {
  int64_t i = first % s.indices;
  const char* block = data + first / s.indices * s.bound * s.run;
  for (int64_t row = first; row < last; ++row) {
    copy(out + row * s.run, block + WrapIndex(indices[i], s.bound) * s.run);
    if (++i == s.indices) {
      i = 0;
      block += s.bound * s.run;
    }
  }
}

template <typename Index>
void GatherRange(const GatherSizes& s, const char* data, const Index* indices, char* out,
                 int64_t first, int64_t last) {
  const auto fixed = [&]<size_t kBytes>() {
    GatherRows(s, data, indices, out, first, last,
               [](char* to, const char* from) { std::memcpy(to, from, kBytes); });
  };
  switch (s.run) {
    case 1:
      return fixed.template operator()<1>();
    case 2:
      return fixed.template operator()<2>();
    case 4:
      return fixed.template operator()<4>();
    case 8:
      return fixed.template operator()<8>();
    default:
      GatherRows(s, data, indices, out, first, last, [&](char* to, const char* from) {
        std::memcpy(to, from, static_cast<size_t>(s.run));
      });
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileGather(const CompileContext& context) {
  const Shape& data = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), data.rank()));
  const auto bytes = static_cast<int64_t>(DTypeSize(context.inputs[0].dtype));
  const GatherSizes s{data.NumElements(0, axis), data[axis], context.inputs[1].size(),
                      data.NumElements(axis + 1, data.rank()) * bytes};
  return DispatchIndex(context.inputs[1].dtype,
                       [&]<typename Index>() -> StatusOr<std::unique_ptr<Kernel>> {
                         return MakeKernel([s](const KernelArgs& args) -> Status {
                           const auto* data = static_cast<const char*>(args.inputs[0]);
                           const auto* indices = static_cast<const Index*>(args.inputs[1]);
                           auto* out = static_cast<char*>(args.outputs[0]);
                           CHAIRLIFT_RETURN_IF_ERROR(CheckIndices(indices, s.indices, s.bound));
                           const int64_t rows = s.outer * s.indices;
                           if (s.run == 0) return absl::OkStatus();
                           ForRanges(args.team, rows, rows * s.run, StridedCopy::kParallelBytes,
                                     [&](int64_t first, int64_t last) {
                                       GatherRange(s, data, indices, out, first, last);
                                     });
                           return absl::OkStatus();
                         });
                       });
}

StatusOr<AxisMap> AxesOfGather(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int index_rank, KnownRank(context, 1));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes().Int("axis", 0), rank));
  AxisMap map = MakeAxisMap(context);
  map.does = "picks along";
  map.inputs[0].labels = LabelsWithout(rank, {&axis, 1});
  for (int i = 0; i < index_rank; ++i) map.inputs[1].labels.push_back(rank + i);
  std::vector<int>& out = map.outputs[0].labels;
  out = map.inputs[0].labels;
  out.erase(out.begin() + axis);
  out.insert(out.begin() + axis, map.inputs[1].labels.begin(), map.inputs[1].labels.end());
  return map;
}

}  // namespace

OperatorDef GatherOperator() {
  return {.name = "Gather",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kMovableTypes, kIndexTypes},
          .infer = InferGather,
          .axes = AxesOfGather,
          .compile = CompileGather,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
