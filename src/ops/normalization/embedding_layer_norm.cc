// chairlift::EmbeddingLayerNorm: lookups in tables, their sum and its layer normalisation, in one
// pass over the tokens.
//
// EmbeddingLayerNorm(scale, shift?, a, a_index?, b?, b_index?, c?, c_index?) -> (y, sum?): s = (a'
// + b') + c', y = LayerNormalization(s) over the last dimension; attribute epsilon. With an index,
// a is a table [rows, n], and a' = a[a_index] as by Gather; without, a' = a, of shape [..., n]. The
// dimensions before n broadcast. scale and shift are [n]. Attribute gathers has, term by term, the
// names of the nodes that the indices come from, for errors.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "ops/broadcast.h"
#include "ops/movement/indices.h"
#include "ops/normalization/normalization.h"
#include "ops/normalization/rows_simd.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

constexpr int kMaxTerms = 3;
constexpr int kFirstTerm = 2;  // its input number

// Input numbers of term t.
constexpr int ValuesOf(int t) { return kFirstTerm + 2 * t; }
constexpr int IndexOf(int t) { return ValuesOf(t) + 1; }

// The dimensions of a term before the last.
StatusOr<SymbolicShape> LeadingDims(const InferContext& context, int t, const Dim& n) {
  const SymbolicShape& values = context.shape(ValuesOf(t));
  const bool picked = context.has_input(IndexOf(t));
  if (values.has_rank()) {
    const bool fits = picked ? values.rank() == 2 : values.rank() > 0;
    const Dim last = fits ? values[values.rank() - 1] : Dim::Unknown();
    if (!fits || (last.known() && n.known() && last.value() != n.value())) {
      return InvalidArgument("input {} has shape {}, not [{},{}]", ValuesOf(t), values.ToString(),
                             picked ? "rows" : "...", n.ToString());
    }
  }
  if (picked) return context.shape(IndexOf(t));
  if (!values.has_rank()) return values;
  return SymbolicShape(std::vector<Dim>(values.dims().begin(), values.dims().end() - 1));
}

Status InferEmbeddingLayerNorm(InferContext& context) {
  const SymbolicShape& scale = context.shape(0);
  if (!context.has_input(0)) return InvalidArgument("input 0 is missing");
  if (scale.has_rank() && scale.rank() != 1) {
    return InvalidArgument("input 0 has shape {}, not one dimension", scale.ToString());
  }
  const Dim n = scale.has_rank() ? scale[0] : Dim::Unknown();
  if (context.has_input(1)) CHAIRLIFT_RETURN_IF_ERROR(CheckPerChannel(context, 1, n));
  std::vector<SymbolicShape> leading;
  for (int t = 0; t < kMaxTerms; ++t) {
    if (!context.has_input(ValuesOf(t))) {
      if (t > 0 && !context.has_input(IndexOf(t))) continue;
      return InvalidArgument("input {} is missing", ValuesOf(t));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape dims, LeadingDims(context, t, n));
    leading.push_back(std::move(dims));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastShapes(leading));
  if (shape.has_rank()) shape.Append(n);
  for (int i = 0; i < context.num_outputs(); ++i) context.set_output(i, DType::kFloat, shape);
  return absl::OkStatus();
}

struct Term {
  size_t input = 0;                      // its values; its index is the next input
  DType index_type = DType::kUndefined;  // kUndefined without an index
  int64_t indices = 0;                   // number of indices
  int64_t bound = 0;                     // rows of the table
  std::string gather;                    // for errors
  bool picked() const { return index_type != DType::kUndefined; }
};

class EmbeddingLayerNorm final : public Kernel {
 public:
  EmbeddingLayerNorm(std::vector<Term> terms, BroadcastLoop loop, int64_t n, float epsilon)
      : terms_(std::move(terms)), loop_(std::move(loop)), n_(n), epsilon_(epsilon) {}

  Status Run(const KernelArgs& args) const override {
    for (const Term& term : terms_) {
      if (Status status = CheckTerm(term, args); !status.ok()) {
        return term.gather.empty() ? status : Annotate(status, term.gather);
      }
    }
    ForRanges(args.team, loop_.size, loop_.size * n_, kMinNormalizedToShare,
              [&](int64_t first, int64_t last) { RunRows(args, first, last); });
    return absl::OkStatus();
  }

 private:
  static Status CheckTerm(const Term& term, const KernelArgs& args) {
    if (!term.picked()) return absl::OkStatus();
    const void* index = args.inputs[term.input + 1];
    return term.index_type == DType::kInt64
               ? CheckIndices(static_cast<const int64_t*>(index), term.indices, term.bound)
               : CheckIndices(static_cast<const int32_t*>(index), term.indices, term.bound);
  }

  void RunRows(const KernelArgs& args, int64_t first, int64_t last) const {
    const auto run = FindRowFns().layer_norm;
    const auto at = [&](void* p, int64_t row) {
      return p == nullptr ? nullptr : static_cast<float*>(p) + row * n_;
    };
    void* sum = args.outputs.size() > 1 ? args.outputs[1] : nullptr;
    const size_t dims = loop_.dims.size();
    const int64_t block = loop_.dims.back();
    for (int64_t row = first; row < last;) {
      // The position of each term at the start of the innermost dimension.
      std::array<int64_t, kMaxTerms> base{};
      int64_t outer = row / block;
      for (size_t d = dims - 1; d-- > 0; outer /= loop_.dims[d]) {
        for (size_t t = 0; t < terms_.size(); ++t) {
          base[t] += outer % loop_.dims[d] * loop_.strides[t][d];
        }
      }
      const int64_t end = std::min(last, (row / block + 1) * block);
      for (int64_t i = row % block; row < end; ++row, ++i) {
        std::array<const float*, kMaxTerms> rows{};
        for (size_t t = 0; t < terms_.size(); ++t) {
          rows[t] = Row(terms_[t], args, base[t] + i * loop_.strides[t][dims - 1]);
        }
        run({.x = rows[0],
             .residual = rows[1],
             .bias = rows[2],
             .scale = static_cast<const float*>(args.inputs[0]),
             .shift = static_cast<const float*>(args.inputs[1]),
             .y = at(args.outputs[0], row),
             .sum = at(sum, row),
             .mean = nullptr,
             .inv_std = nullptr,
             .rows = 1,
             .n = n_,
             .epsilon = epsilon_});
      }
    }
  }

  // Row `at` of the term, or the one that index `at` selects.
  const float* Row(const Term& term, const KernelArgs& args, int64_t at) const {
    if (term.picked()) {
      at = WrapIndex(ReadIndex(term.index_type, args.inputs[term.input + 1], at), term.bound);
    }
    return static_cast<const float*>(args.inputs[term.input]) + at * n_;
  }

  const std::vector<Term> terms_;
  const BroadcastLoop loop_;  // over rows
  const int64_t n_;
  const float epsilon_;
};

// All dimensions but the last.
Shape WithoutLast(const Shape& shape) {
  return Shape(shape.dims().subspan(0, static_cast<size_t>(shape.rank()) - 1));
}

StatusOr<std::unique_ptr<Kernel>> CompileEmbeddingLayerNorm(const CompileContext& context) {
  const std::vector<std::string> gathers = context.attributes.Strings("gathers");
  std::vector<Term> terms;
  std::vector<Shape> leading;
  for (int t = 0; t < kMaxTerms; ++t) {
    if (!context.has_input(ValuesOf(t))) continue;
    const TensorDesc& values = context.inputs[static_cast<size_t>(ValuesOf(t))];
    Term term;
    term.input = static_cast<size_t>(ValuesOf(t));
    if (context.has_input(IndexOf(t))) {
      const TensorDesc& index = context.inputs[term.input + 1];
      term.index_type = index.dtype;
      term.indices = index.size();
      term.bound = values.shape[0];
      if (static_cast<size_t>(t) < gathers.size()) term.gather = gathers[static_cast<size_t>(t)];
      leading.push_back(index.shape);
    } else {
      leading.push_back(WithoutLast(values.shape));
    }
    terms.push_back(std::move(term));
  }
  const Shape& y = context.outputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(BroadcastLoop loop, MakeBroadcastLoop(leading, WithoutLast(y)));
  return std::make_unique<EmbeddingLayerNorm>(std::move(terms), std::move(loop), y[y.rank() - 1],
                                              context.attributes.Float("epsilon", 1e-5f));
}

}  // namespace

void RegisterEmbeddingLayerNorm(OperatorRegistry& registry) {
  const TypeSet values{DType::kFloat};

  registry.Add({.domain = "chairlift",
                .name = "EmbeddingLayerNorm",
                .min_inputs = 1,  // the shift is optional; the shape rule requires a term
                .max_inputs = kFirstTerm + 2 * kMaxTerms,
                .min_outputs = 1,
                .max_outputs = 2,
                .input_types = {values, values, values, kIndexTypes, values, kIndexTypes, values,
                                kIndexTypes},
                .infer = InferEmbeddingLayerNorm,
                .compile = CompileEmbeddingLayerNorm});
}

}  // namespace chairlift
