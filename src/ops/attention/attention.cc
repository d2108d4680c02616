// chairlift::Attention(q, k, v, mask?) -> y: softmax(scale·q·kᵀ + mask)·v for every head of every
// sequence.
//
// Operands have rank 4, with axes in any order: attribute `q_axes` gives the positions of batch,
// head, query and column in q. k_axes (keys for queries), v_axes and y_axes do the same; the
// default is [0, 1, 2, 3]. Batch and heads of q, k, v and mask broadcast, and so does a mask of one
// query. mask is float32 [batch, heads, queries, keys], in this order. The other attributes, with
// their defaults:
//   scale (1)           a factor for q·kᵀ
//   grouped (0)         not 0: k and v may have fewer heads than q, a divisor
//   causal (0)          1: query i attends to keys 0 to i; 2: to keys − queries more, so that the
//                       last query attends to all
//   softcap (0)         not 0: a tanh limits scores to ± this
//   zeros_for_none (0)  not 0: a query whose scores are all −∞ gets zeros instead of NaN; 2: so
//   does
//                       one with a score that is NaN or +∞
//   distances (0)       not 0: mask is [heads, 2·n − 1]; entry n − 1 + j − i of a head is added to
//                       the score of its query i and key j, both below n
//   steps (none)        what scores and weights are rounded to (attention_steps.h)
#include <algorithm>
#include <array>
#include <utility>

#include "ops/attention/attention_heads.h"
#include "ops/attention/attention_operators.h"
#include "ops/attention/attention_steps.h"
#include "ops/broadcast.h"

namespace chairlift {
namespace {

using Strides = AttentionShapes::Strides;
using Place = AttentionShapes::Place;
using enum AttentionShapes::Place;

using Axes = std::array<int, 4>;

StatusOr<Axes> ReadAxes(const Attributes& attributes, std::string_view name) {
  const std::vector<int64_t> given = attributes.Ints(name, {0, 1, 2, 3});
  Axes axes{};
  std::array<bool, 4> seen{};
  for (size_t i = 0; i < given.size() && i < 4; ++i) {
    if (given[i] < 0 || given[i] > 3 || seen[static_cast<size_t>(given[i])]) break;
    seen[static_cast<size_t>(given[i])] = true;
    axes[i] = static_cast<int>(given[i]);
  }
  if (given.size() != 4 || !std::all_of(seen.begin(), seen.end(), [](bool s) { return s; })) {
    return InvalidArgument("attribute {} is not a permutation of 0 to 3", name);
  }
  return axes;
}

// A dimension that several operands share.
struct Shared {
  Dim dim = Dim::Unknown();
  Status Join(const Dim& other, const char* what) {
    if (dim.known() && other.known() && dim.value() != other.value()) {
      return InvalidArgument("the inputs differ in {}: {} and {}", what, dim.value(),
                             other.value());
    }
    dim = MergeDims(dim, other);
    return absl::OkStatus();
  }
};

// A dimension to which that of every operand broadcasts.
struct Widest {
  Dim dim = Dim(1);
  Status Join(const Dim& other, const char* what) {
    auto both = BroadcastDims(dim, other);
    if (!both.ok()) {
      return InvalidArgument("the inputs differ in {}: {} and {}", what, dim.value(),
                             other.value());
    }
    dim = *both;
    return absl::OkStatus();
  }
};

// If there are fewer key heads than query heads, each key head serves several query heads.
Status CheckGroups(const Dim& heads, const Dim& of_keys) {
  if (!heads.known() || !of_keys.known()) return absl::OkStatus();
  if (of_keys.value() == 0 ? heads.value() == 0 : heads.value() % of_keys.value() == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument("the number of key heads, {}, does not divide that of query heads, {}",
                         of_keys.value(), heads.value());
}

Status InferAttention(InferContext& context) {
  std::array<Axes, 4> axes;
  const std::array<const char*, 4> names = {"q_axes", "k_axes", "v_axes", "y_axes"};
  for (size_t i = 0; i < 4; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes[i], ReadAxes(context.attributes(), names[i]));
  }
  const bool grouped = context.attributes().Int("grouped", 0) != 0;
  Shared kv_heads, keys, columns;
  Widest batch, heads, queries;
  Dim values = Dim::Unknown();
  for (int i = 0; i < 3; ++i) {
    const SymbolicShape& shape = context.shape(i);
    if (i > 0 && context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {}, input 0 {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(0)));
    }
    if (shape.has_rank() && shape.rank() != 4) {
      return InvalidArgument("input {} has rank {}", i, shape.rank());
    }
    const auto dim = [&](Place place) {
      return shape.has_rank() ? shape[axes[static_cast<size_t>(i)][place]] : Dim::Unknown();
    };
    CHAIRLIFT_RETURN_IF_ERROR(batch.Join(dim(kBatch), "their batch"));
    if (i == 0 || !grouped) CHAIRLIFT_RETURN_IF_ERROR(heads.Join(dim(kHead), "their heads"));
    if (i > 0 && grouped) {
      CHAIRLIFT_RETURN_IF_ERROR(kv_heads.Join(dim(kHead), "heads of keys"));
    }
    if (i == 0) CHAIRLIFT_RETURN_IF_ERROR(queries.Join(dim(kRow), "queries"));
    if (i > 0) CHAIRLIFT_RETURN_IF_ERROR(keys.Join(dim(kRow), "keys"));
    if (i < 2) CHAIRLIFT_RETURN_IF_ERROR(columns.Join(dim(kColumn), "columns"));
    if (i == 2) values = dim(kColumn);
  }
  if (grouped) CHAIRLIFT_RETURN_IF_ERROR(CheckGroups(heads.dim, kv_heads.dim));
  if (context.has_input(3) && context.attributes().Int("distances", 0) == 0) {
    const SymbolicShape& mask = context.shape(3);
    if (mask.has_rank() && mask.rank() > 4) {
      return InvalidArgument("the mask has rank {}", mask.rank());
    }
    const auto dim = [&](int place) {
      if (!mask.has_rank()) return Dim::Unknown();
      return place < 4 - mask.rank() ? Dim(1) : mask[place - 4 + mask.rank()];
    };
    CHAIRLIFT_RETURN_IF_ERROR(batch.Join(dim(kBatch), "their batch"));
    CHAIRLIFT_RETURN_IF_ERROR(heads.Join(dim(kHead), "their heads"));
    CHAIRLIFT_RETURN_IF_ERROR(queries.Join(dim(kRow), "queries"));
  }
  std::vector<Dim> out(4);
  out[static_cast<size_t>(axes[3][kBatch])] = batch.dim;
  out[static_cast<size_t>(axes[3][kHead])] = heads.dim;
  out[static_cast<size_t>(axes[3][kRow])] = queries.dim;
  out[static_cast<size_t>(axes[3][kColumn])] = values;
  context.set_output(0, context.dtype(0), SymbolicShape(std::move(out)));
  return absl::OkStatus();
}

// Strides along batch, head, row and column. Among the first `shared` of these, an axis of one
// entry has stride 0, so that the entry serves all.
Strides StridesOf(const Shape& shape, const Axes& axes, size_t shared) {
  Strides strides{};
  for (size_t place = 0; place < 4; ++place) {
    const bool one = place < shared && shape[axes[place]] == 1;
    strides[place] = one ? 0 : shape.NumElements(axes[place] + 1, 4);
  }
  return strides;
}

StatusOr<Strides> MaskStrides(const Shape& mask, const std::array<int64_t, 4>& scores) {
  Strides strides{};
  for (int i = 0; i < mask.rank(); ++i) {
    const int at = 4 - mask.rank() + i;
    if (mask[i] == 1) continue;
    if (mask[i] != scores[static_cast<size_t>(at)]) {
      return InvalidArgument("a mask {} does not broadcast to [{}, {}, {}, {}]", mask.ToString(),
                             scores[0], scores[1], scores[2], scores[3]);
    }
    strides[static_cast<size_t>(at)] = mask.NumElements(i + 1, mask.rank());
  }
  return strides;
}

}  // namespace

StatusOr<AttentionShapes> AttentionShapesOf(const CompileContext& context) {
  AttentionShapes made;
  std::array<Axes, 4> axes;
  const std::array<const char*, 4> names = {"q_axes", "k_axes", "v_axes", "y_axes"};
  for (size_t i = 0; i < 4; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes[i], ReadAxes(context.attributes, names[i]));
    const size_t shared = i == 0 ? kColumn : i < 3 ? kRow : 0;
    made.strides[i] =
        StridesOf(i < 3 ? context.inputs[i].shape : context.outputs[0].shape, axes[i], shared);
  }
  const Shape& q = context.inputs[0].shape;
  const Shape& k = context.inputs[1].shape;
  const Shape& v = context.inputs[2].shape;
  const Shape& y = context.outputs[0].shape;
  const int64_t batch = made.batch = y[axes[3][kBatch]];
  made.heads = y[axes[3][kHead]];
  AttentionHead& head = made.head;
  head.queries = y[axes[3][kRow]];
  head.keys = k[axes[1][kRow]];
  head.head_size = q[axes[0][kColumn]];
  head.value_size = v[axes[2][kColumn]];
  head.q_row = made.strides[0][kRow];
  head.k_row = made.strides[1][kRow];
  head.k_column = made.strides[1][kColumn];
  head.v_row = made.strides[2][kRow];
  head.out_row = made.strides[3][kRow];
  if (context.attributes.Int("grouped", 0) != 0) {
    made.sharing = std::max<int64_t>(made.heads / std::max<int64_t>(k[axes[1][kHead]], 1), 1);
  }
  head.scale = context.attributes.Float("scale", 1.0f);
  head.softcap = context.attributes.Float("softcap", 0.0f);
  const int64_t causal = context.attributes.Int("causal", 0);
  if (causal != 0) head.last_seen = causal == 2 ? head.keys - head.queries : 0;
  head.zeros_for_none = context.attributes.Int("zeros_for_none", 0) != 0;
  head.zeros_for_nan = context.attributes.Int("zeros_for_none", 0) == 2;
  for (const size_t i : {0, 2, 3}) {
    if (made.strides[i][kColumn] != 1) {
      return InvalidArgument("the columns of {} are not its last axis",
                             std::array{"q", "k", "v", "y"}[i]);
    }
  }
  if (context.has_input(3) && context.attributes.Int("distances", 0) != 0) {
    const Shape& bias = context.inputs[3].shape;
    const int64_t reach = bias.rank() == 2 ? bias[1] / 2 : 0;
    if (bias.rank() != 2 || bias[0] != made.heads || bias[1] % 2 == 0 ||
        std::max(head.queries, head.keys) > reach + 1) {
      return InvalidArgument("a bias {} is not for {} heads and distances up to {}",
                             bias.ToString(), made.heads, std::max(head.queries, head.keys) - 1);
    }
    made.mask[kHead] = bias[1];
    made.first = reach;
    head.mask_row = -1;
    head.mask_column = 1;
  } else if (context.has_input(3)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(
        made.mask,
        MaskStrides(context.inputs[3].shape, {batch, made.heads, head.queries, head.keys}));
    head.mask_row = made.mask[kRow];
    head.mask_column = made.mask[kColumn];
  }
  return made;
}

namespace {

class Attention final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<Attention>();
    CHAIRLIFT_ASSIGN_OR_RETURN(made->shapes_, AttentionShapesOf(context));
    CHAIRLIFT_ASSIGN_OR_RETURN(made->steps_, AttentionStepsOf(context.attributes));
    made->all_ = AttentionHeads(made->shapes_.head, made->shapes_.batch * made->shapes_.heads,
                                context.width);
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override { return all_.scratch_bytes(); }

  Status Run(const KernelArgs& args) const override {
    return all_.Run(args.team, args.scratch, [&](int64_t unit) {
      const AttentionShapes& s = shapes_;
      const int64_t b = unit / s.heads, h = unit % s.heads;
      const auto input = [&](size_t i, const Strides& strides, int64_t at) {
        return static_cast<const float*>(args.inputs[i]) + b * strides[kBatch] +
               at * strides[kHead];
      };
      AttentionHead head = s.head;
      head.steps = steps_ ? &*steps_ : nullptr;
      head.q = input(0, s.strides[0], h);
      head.k = input(1, s.strides[1], h / s.sharing);
      head.v = input(2, s.strides[2], h / s.sharing);
      if (args.inputs.size() > 3 && args.inputs[3] != nullptr) {
        head.mask = input(3, s.mask, h) + s.first;
      }
      head.out =
          static_cast<float*>(args.outputs[0]) + b * s.strides[3][kBatch] + h * s.strides[3][kHead];
      return head;
    });
  }

 private:
  AttentionShapes shapes_;
  std::optional<AttentionSteps> steps_;
  AttentionHeads all_;
};

// For scores and for weighted values. If causal, the masked half counts, too.
double AttentionMultiplyAdds(const Attributes& attributes, std::span<const TensorDesc> in,
                             std::span<const TensorDesc>) {
  const auto k = ReadAxes(attributes, "k_axes"), v = ReadAxes(attributes, "v_axes");
  if (!k.ok() || !v.ok()) return 0;
  const double columns = static_cast<double>(in[1].shape[(*k)[kColumn]]);
  const double values = static_cast<double>(in[2].shape[(*v)[kColumn]]);
  if (columns == 0) return 0;
  return static_cast<double>(in[0].size()) / columns *
         static_cast<double>(in[1].shape[(*k)[kRow]]) * (columns + values);
}

}  // namespace

void RegisterFusedAttention(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "Attention",
                .min_inputs = 3,
                .max_inputs = 4,
                .input_types = {kHalfTypes | TypeSet{DType::kFloat}},
                .infer = InferAttention,
                .compile = Attention::Compile,
                .multiply_adds = AttentionMultiplyAdds});
}

}  // namespace chairlift
