// chairlift::RaggedQuantize(x [T, ..., k], offsets?, requests? [R+1]) -> y [T, ..., k], scale [T,
// ..., 1], zero point [T, ..., 1]: DynamicQuantizeLinear of each sequence, over its own range. All
// rows of a sequence have its scale and zero point. `requests` has the first sequence of each
// request; all sequences of a request then share one range. Without offsets, all of x has one
// range.
//
// chairlift::RowQuantize(x [R, ..., k]) is the same with a range for each of R rows.
#include <algorithm>
#include <array>
#include <optional>

#include "ops/axis_map.h"
#include "ops/linear/int8_rows.h"
#include "ops/ragged/ragged.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

Status InferRaggedQuantize(InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  if (x.has_rank() && x.rank() < 2) return InvalidArgument("x has rank {}, below 2", x.rank());
  for (const int i : {1, 2}) {
    if (context.has_input(i)) CHAIRLIFT_RETURN_IF_ERROR(SequencesOf(context, i).status());
  }
  SymbolicShape parameters = x;
  if (x.has_rank()) parameters[x.rank() - 1] = Dim(1);
  context.set_output(0, DType::kUInt8, x);
  if (context.num_outputs() > 1) context.set_output(1, DType::kFloat, parameters);
  if (context.num_outputs() > 2) context.set_output(2, DType::kUInt8, parameters);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileQuantize(const CompileContext& context, bool by_row) {
  const Shape& shape = context.inputs[0].shape;
  const int64_t tokens = shape[0];
  const int64_t rows = shape.NumElements(1, shape.rank() - 1);  // of each token
  const int64_t columns = rows * shape[shape.rank() - 1];       // likewise
  std::array<std::optional<TensorDesc>, 2> descs;
  for (const int i : {1, 2}) {
    if (context.has_input(i)) descs[static_cast<size_t>(i - 1)] = context.inputs[i];
  }
  return MakeKernel(
      [=](const KernelArgs& args) -> Status {
        const std::array<int64_t, 2> whole = {0, tokens};
        std::span<const int64_t> offsets = whole;
        if (descs[0]) {
          CHAIRLIFT_ASSIGN_OR_RETURN(offsets, CheckedOffsets(args, 1, *descs[0], tokens));
        }
        std::optional<std::span<const int64_t>> requests;
        if (descs[1]) {
          CHAIRLIFT_ASSIGN_OR_RETURN(
              requests,
              CheckedOffsets(args, 2, *descs[1], static_cast<int64_t>(offsets.size()) - 1));
        }
        // The first token of segment s.
        const auto begin = [&](size_t s) {
          if (by_row) return static_cast<int64_t>(s);
          return requests ? offsets[static_cast<size_t>((*requests)[s])] : offsets[s];
        };
        const size_t segments = by_row     ? static_cast<size_t>(tokens)
                                : requests ? requests->size() - 1
                                           : offsets.size() - 1;
        const int64_t end = begin(segments);
        const auto output = [&](size_t i) {
          return i < args.outputs.size() ? args.outputs[i] : nullptr;
        };
        const auto* x = static_cast<const float*>(args.inputs[0]);
        auto* y = static_cast<uint8_t*>(output(0));
        auto* scales = static_cast<float*>(output(1));
        auto* zeros = static_cast<uint8_t*>(output(2));
        auto* ranges = static_cast<FloatRange*>(args.scratch);
        auto* parameters = reinterpret_cast<ByteScale*>(ranges + tokens);
        constexpr int64_t kWorthSharing = int64_t{1} << 15;
        const auto share = [&](const auto& body) {
          ForRanges(args.team, tokens, tokens * columns, kWorthSharing, body);
        };
        share([&](int64_t first, int64_t last) {
          for (int64_t t = first; t < last; ++t) ranges[t] = FloatRangeOf(x + t * columns, columns);
        });
        for (size_t s = 0; s < segments; ++s) {
          FloatRange range;
          for (int64_t t = begin(s); t < begin(s + 1); ++t) range = UnionOf(range, ranges[t]);
          std::fill(parameters + begin(s), parameters + begin(s + 1), ByteScaleOf(range));
        }
        std::fill(parameters + end, parameters + tokens, ByteScale{.scale = 0});
        share([&](int64_t first, int64_t last) {
          for (int64_t t = first; t < last; ++t) {
            const ByteScale by = parameters[t];
            if (scales != nullptr) std::fill_n(scales + t * rows, rows, by.scale);
            if (zeros != nullptr) std::fill_n(zeros + t * rows, rows, by.zero);
            if (y == nullptr) continue;
            if (t < end) {
              QuantizeBytes(x + t * columns, columns, by, y + t * columns);
            } else {
              std::fill_n(y + t * columns, columns, uint8_t{0});
            }
          }
        });
        return absl::OkStatus();
      },
      static_cast<size_t>(tokens) * (sizeof(FloatRange) + sizeof(ByteScale)));
}

}  // namespace

void RegisterRaggedQuantize(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "RaggedQuantize",
                .min_inputs = 1,
                .max_inputs = 3,
                .max_outputs = 3,
                .input_types = {{DType::kFloat}, TypeSet{DType::kInt64}},
                .infer = InferRaggedQuantize,
                .compile = [](const CompileContext& c) { return CompileQuantize(c, false); }});
  registry.Add({.domain = "chairlift",
                .name = "RowQuantize",
                .max_outputs = 3,
                .input_types = {{DType::kFloat}},
                .infer = InferRaggedQuantize,
                .axes = FirstAxis<0>,
                .compile = [](const CompileContext& c) { return CompileQuantize(c, true); }});
}

}  // namespace chairlift
