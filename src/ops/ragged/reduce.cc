// chairlift::RaggedReduce(x [T, ...], offsets) -> y [R, ...]: the sum, mean, max or min (attribute
// `op`) over the tokens of each sequence.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "ops/extrema.h"
#include "ops/ragged/ragged.h"
#include "ops/ranges.h"
#include "ops/reduction/fold_simd.h"

namespace chairlift {
namespace {

enum class Op { kSum, kMean, kMax, kMin };

StatusOr<Op> ReadOp(const Attributes& attributes) {
  constexpr std::array<std::string_view, 4> kNames = {"sum", "mean", "max", "min"};
  const std::string name = attributes.String("op", "");
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return InvalidArgument("there is no op '{}'", name);
  return static_cast<Op>(found - kNames.begin());
}

Status InferRaggedReduce(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(ReadOp(context.attributes()).status());
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim sequences, SequencesOf(context, 1));
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, WithFirst(context, 0, sequences));
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

// The fold of `columns` (at most kFoldColumns) columns of `tokens` rows, at least one.
void Fold(const FoldFns& fold, Op op, const float* x, int64_t tokens, int64_t stride,
          int64_t columns, float* y) {
  std::array<double, kFoldColumns> sums;
  std::fill_n(sums.begin(), columns, fold.start);
  fold.columns(x, tokens, stride, columns, nullptr, sums.data());
  const double factor = op == Op::kMean ? 1.0 / static_cast<double>(tokens) : 1.0;
  for (int64_t c = 0; c < columns; ++c) {
    y[c] = static_cast<float>(sums[static_cast<size_t>(c)] * factor);
  }
}

template <typename T>
void Fold(Op op, const T* x, int64_t tokens, int64_t stride, int64_t columns, T* y) {
  // Integer sums wrap around.
  using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  for (int64_t c = 0; c < columns; ++c) {
    Sum sum = 0;
    T most = x[c], least = x[c];
    for (int64_t t = 0; t < tokens; ++t) {
      const T v = x[t * stride + c];
      sum += static_cast<Sum>(v);
      most = Larger(v, most);
      least = Smaller(v, least);
    }
    const T whole = static_cast<T>(sum);
    y[c] = op == Op::kMax   ? most
           : op == Op::kMin ? least
           : op == Op::kSum ? whole
                            : static_cast<T>(whole / static_cast<T>(tokens));
  }
}

template <typename T>
std::unique_ptr<Kernel> Make(const CompileContext& context, Op op) {
  const Shape& shape = context.inputs[0].shape;
  const int64_t columns = shape.NumElements(1, shape.rank());
  const FoldFns fold = FindFold(op == Op::kMax   ? FloatFold::kMax
                                : op == Op::kMin ? FloatFold::kMin
                                                 : FloatFold::kSum);
  return MakeKernel(
      [=, tokens = shape[0], desc = context.inputs[1]](const KernelArgs& args) -> Status {
        CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets, CheckedOffsets(args, 1, desc, tokens));
        const auto* x = static_cast<const T*>(args.inputs[0]);
        auto* y = static_cast<T*>(args.outputs[0]);
        const int64_t blocks = (columns + kFoldColumns - 1) / kFoldColumns;
        constexpr int64_t kWorthSharing = 100'000;
        ForRanges(args.team, static_cast<int64_t>(offsets.size() - 1) * blocks, tokens * columns,
                  kWorthSharing, [&](int64_t first, int64_t last) {
                    for (int64_t i = first; i < last; ++i) {
                      const int64_t s = i / blocks, column = i % blocks * kFoldColumns;
                      const int64_t begin = offsets[static_cast<size_t>(s)];
                      const int64_t count = offsets[static_cast<size_t>(s) + 1] - begin;
                      const int64_t width = std::min(kFoldColumns, columns - column);
                      const T* from = x + begin * columns + column;
                      T* to = y + s * columns + column;
                      if (count == 0) {
                        std::fill_n(to, width, T{});
                      } else if constexpr (std::is_same_v<T, float>) {
                        Fold(fold, op, from, count, columns, width, to);
                      } else {
                        Fold(op, from, count, columns, width, to);
                      }
                    }
                  });
        return absl::OkStatus();
      });
}

StatusOr<std::unique_ptr<Kernel>> CompileRaggedReduce(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Op op, ReadOp(context.attributes));
  return DispatchTypes<float, double, int32_t, int64_t>(
      context.inputs[0].dtype,
      [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> { return Make<T>(context, op); });
}

}  // namespace

void RegisterRaggedReduce(OperatorRegistry& registry) {
  registry.Add(
      {.domain = "chairlift",
       .name = "RaggedReduce",
       .min_inputs = 2,
       .max_inputs = 2,
       .input_types = {kFloatTypes | TypeSet{DType::kInt32, DType::kInt64}, TypeSet{DType::kInt64}},
       .infer = InferRaggedReduce,
       .compile = CompileRaggedReduce});
}

}  // namespace chairlift
