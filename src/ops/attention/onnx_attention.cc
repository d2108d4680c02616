// Attention(q, k, v, mask?, past_key?, past_value?, nonpad_kv_seqlen?)
//     -> (y, present_key?, present_value?, qk_matmul_output?), in ONNX since opset 23.
//
// q is [batch, heads, queries, columns] or [batch, queries, heads·columns]; k and v likewise, with
// as many heads or a divisor of them. The present keys are the past ones followed by the new ones.
// A mask with fewer columns than keys hides the other keys. A query that attends to no key gets
// zeros.
//
// Computed in blocks of keys (attention_kernel.h), or by the formula: AttentionImplementations().
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "base/stop_poll.h"
#include "ops/attention/attention_heads.h"
#include "ops/attention/attention_operators.h"
#include "ops/attention/attention_shapes.h"
#include "ops/axis_map.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

// --- Shapes --------------------------------------------------------------------------------------

Dim Sum(const Dim& a, const Dim& b) {
  if (a.known() && a.value() == 0) return b;
  if (b.known() && b.value() == 0) return a;
  return a.known() && b.known() ? Dim(a.value() + b.value()) : Dim::Unknown();
}

Status CheckAttributes(const InferContext& context) {
  const Attributes& attributes = context.attributes();
  for (const char* name : {"left_window_size", "right_window_size"}) {
    if (attributes.Int(name, -1) < -1) {
      return InvalidArgument("attribute {} is {}, not −1 or more", name, attributes.Int(name, -1));
    }
  }
  if (!(attributes.Float("softcap", 0) >= 0)) return InvalidArgument("softcap is negative");
  const int64_t mode = attributes.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) return InvalidArgument("qk_matmul_output_mode is {}", mode);
  const int64_t precision = attributes.Int("softmax_precision", 1);
  if (precision != 1 && precision != 10 && precision != 11 && precision != 16) {
    return InvalidArgument("softmax_precision {} is not a floating-point type", precision);
  }
  if (context.has_input(4) != context.has_input(5)) {
    return InvalidArgument("past_key and past_value are needed both, or neither");
  }
  if (context.has_input(4) && context.has_input(6)) {
    return InvalidArgument("nonpad_kv_seqlen does not go with past_key");
  }
  const auto computes_as = [&](int i) {
    return kHalfTypes.Contains(context.dtype(i)) ? DType::kFloat : context.dtype(i);
  };
  for (const int i : {1, 2, 3, 4, 5}) {
    if (!context.has_input(i) || (i == 3 && context.dtype(i) == DType::kBool)) continue;
    if (computes_as(i) != computes_as(0)) {
      return InvalidArgument("input {} is {} where the queries are {}", i,
                             DTypeName(context.dtype(i)), DTypeName(context.dtype(0)));
    }
  }
  return absl::OkStatus();
}

// An operand's dimensions as [batch, heads, rows, columns].
StatusOr<std::array<Dim, 4>> HeadDims(const InferContext& context, int i, const char* attribute) {
  const SymbolicShape& shape = context.shape(i);
  if (shape.rank() == 4) return std::array<Dim, 4>{shape[0], shape[1], shape[2], shape[3]};
  const int64_t heads = context.attributes().Int(attribute, 0);
  if (heads < 1)
    return InvalidArgument("attribute {} is needed where inputs have rank 3", attribute);
  Dim columns = Dim::Unknown();
  if (shape[2].known()) {
    if (shape[2].value() % heads != 0) {
      return InvalidArgument("{} = {} does not divide the {} columns of input {}", attribute, heads,
                             shape[2].value(), i);
    }
    columns = shape[2].value() / heads;
  }
  return std::array<Dim, 4>{shape[0], Dim(heads), shape[1], columns};
}

Status InferOnnxAttention(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckAttributes(context));
  const std::array<DType, 4> types = {context.dtype(0), context.dtype(1), context.dtype(2),
                                      context.dtype(0)};
  for (int i = 0; i < context.num_outputs(); ++i) {
    context.set_output(i, types[static_cast<size_t>(i)], SymbolicShape());
  }
  for (int i = 0; i < 3; ++i) {
    if (!context.shape(i).has_rank()) return absl::OkStatus();
    if (context.shape(i).rank() != context.shape(0).rank() ||
        (context.shape(i).rank() != 3 && context.shape(i).rank() != 4)) {
      return InvalidArgument("q, k and v are {}, {} and {}; they need rank 3 or 4, all the same",
                             context.shape(0).ToString(), context.shape(1).ToString(),
                             context.shape(2).ToString());
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto q, HeadDims(context, 0, "q_num_heads"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto k, HeadDims(context, 1, "kv_num_heads"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto v, HeadDims(context, 2, "kv_num_heads"));
  const Dim batch = MergeDims(q[0], k[0]);
  if (context.shape(0).rank() == 4) {
    context.set_output(0, types[0], SymbolicShape({batch, q[1], q[2], v[3]}));
  } else {
    const Dim columns = v[3].known() ? Dim(q[1].value() * v[3].value()) : Dim::Unknown();
    context.set_output(0, types[0], SymbolicShape({batch, q[2], columns}));
  }
  Dim past = 0;
  if (context.has_input(4)) {
    const SymbolicShape& shape = context.shape(4);
    if (shape.has_rank() && shape.rank() != 4) {
      return InvalidArgument("past_key has rank {}, not 4", shape.rank());
    }
    past = shape.has_rank() ? shape[2] : Dim::Unknown();
  }
  const Dim total = Sum(past, MergeDims(k[2], v[2]));
  const std::array<SymbolicShape, 3> others = {SymbolicShape({batch, k[1], total, k[3]}),
                                               SymbolicShape({batch, k[1], total, v[3]}),
                                               SymbolicShape({batch, q[1], q[2], total})};
  for (int i = 1; i < context.num_outputs(); ++i) {
    context.set_output(i, types[static_cast<size_t>(i)], others[static_cast<size_t>(i - 1)]);
  }
  return absl::OkStatus();
}

// --- Scores by the formula -----------------------------------------------------------------------

// The processing of one query's scores; T is the type of all tensors.
template <typename T>
struct Formula {
  AttentionSizes sizes;
  double scale = 1, softcap = 0;
  int64_t output_mode = 0;
  const T* q;  // of this query
  const T* k;  // of this head
  HeadStrides k_strides;
  const T* mask;  // of this query, or null
  int64_t mask_column;
  int64_t masked_from;            // keys from here on are hidden
  int64_t first_seen, last_seen;  // the keys that it attends to

  // scores: [total]. Writes the values for qk_matmul_output to `out`, unless that is null.
  void Weights(double* scores, T* out) const {
    const auto give = [&](int64_t mode) {
      if (out == nullptr || mode != output_mode) return;
      for (int64_t j = 0; j < sizes.total; ++j) out[j] = static_cast<T>(scores[j]);
    };
    for (int64_t j = 0; j < sizes.total; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < sizes.head_size; ++c) {
        dot += static_cast<double>(q[c]) * static_cast<double>(k[j * k_strides.row + c]);
      }
      scores[j] = dot * scale;
    }
    give(0);
    for (int64_t j = 0; softcap > 0 && j < sizes.total; ++j) {
      scores[j] = softcap * std::tanh(scores[j] / softcap);
    }
    give(1);
    for (int64_t j = 0; j < sizes.total; ++j) {
      const bool hidden = j >= masked_from || j < first_seen || j > last_seen;
      if (hidden) {
        scores[j] = -std::numeric_limits<double>::infinity();
      } else if (mask != nullptr) {
        scores[j] += static_cast<double>(mask[j * mask_column]);
      }
    }
    give(2);
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < sizes.total; ++j) {
      if (scores[j] > most || std::isnan(scores[j])) most = scores[j];
    }
    for (int64_t j = 0; j < sizes.total; ++j) {
      const bool none = most == -std::numeric_limits<double>::infinity();
      scores[j] = none ? 0.0 : std::exp(scores[j] - most);
      sum += scores[j];
    }
    for (int64_t j = 0; sum != 0 && j < sizes.total; ++j) scores[j] /= sum;
    give(3);
  }
};

// --- The kernel ----------------------------------------------------------------------------------

template <typename T>
class OnnxAttention final : public Kernel {
 public:
  static std::unique_ptr<Kernel> Make(const AttentionSizes& s, bool by_formula,
                                      const CompileContext& context) {
    auto made = std::make_unique<OnnxAttention>();
    made->sizes_ = s;
    made->by_formula_ = by_formula;
    const Attributes& attributes = context.attributes;
    const double by_size = s.head_size == 0 ? 1 : 1 / std::sqrt(static_cast<double>(s.head_size));
    made->scale_ = attributes.Has("scale") ? attributes.Float("scale", 1) : by_size;
    made->softcap_ = attributes.Float("softcap", 0);
    made->output_mode_ = attributes.Int("qk_matmul_output_mode", 0);
    made->causal_ = attributes.Int("is_causal", 0) != 0;
    made->left_ = attributes.Int("left_window_size", -1);
    made->right_ = attributes.Int("right_window_size", -1);
    made->bool_mask_ = context.has_input(3) && context.inputs[3].dtype == DType::kBool;
    made->mask_size_ = context.has_input(3) ? context.inputs[3].size() : 0;
    made->nonpad_ = context.has_input(6);
    made->width_ = context.width;
    AttentionHead& head = made->head_;
    head.queries = s.queries;
    head.keys = s.total;
    head.head_size = s.head_size;
    head.value_size = s.value_size;
    head.q_row = s.q.row;
    head.out_row = s.y.row;
    head.scale = static_cast<float>(made->scale_);
    head.softcap = static_cast<float>(made->softcap_);
    head.mask_row = s.mask.row;
    head.mask_column = s.mask.column;
    head.zeros_for_none = true;
    made->heads_ = AttentionHeads(head, s.batch * s.heads, context.width);
    return made;
  }

  size_t scratch_bytes() const override {
    const size_t work = by_formula_ ? Aligned(static_cast<size_t>(width_) * SlotScores() * 8)
                                    : Aligned(heads_.scratch_bytes());
    return work + PresentBytes(sizes_.head_size) + PresentBytes(sizes_.value_size) +
           Aligned(bool_mask_ ? static_cast<size_t>(mask_size_) * sizeof(T) : 0);
  }

  Status Run(const KernelArgs& args) const override {
    CHAIRLIFT_RETURN_IF_ERROR(CheckLengths(args));
    auto* next = static_cast<std::byte*>(args.scratch);
    Bound bound;
    bound.work = next;
    next += by_formula_ ? Aligned(static_cast<size_t>(width_) * SlotScores() * 8)
                        : Aligned(heads_.scratch_bytes());
    bound.k = Present(args, 1, 4, sizes_.k, sizes_.head_size, next);
    next += PresentBytes(sizes_.head_size);
    bound.v = Present(args, 2, 5, sizes_.v, sizes_.value_size, next);
    next += PresentBytes(sizes_.value_size);
    bound.mask = Mask(args, next);
    if constexpr (std::is_same_v<T, float>) {
      if (!by_formula_) {
        return heads_.Run(args.team, bound.work,
                          [&](int64_t unit) { return Head(args, bound, unit); });
      }
    }
    return RunFormula(args, bound);
  }

 private:
  // An operand of keys or values, including past ones.
  struct Keys {
    const T* data = nullptr;
    HeadStrides strides;
  };
  // The operands of one run.
  struct Bound {
    std::byte* work = nullptr;
    Keys k, v;
    const T* mask = nullptr;
  };

  static size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
  size_t SlotScores() const { return (static_cast<size_t>(sizes_.total) + 7) / 8 * 8; }
  size_t PresentBytes(int64_t columns) const {
    if (sizes_.past == 0) return 0;
    return Aligned(static_cast<size_t>(sizes_.batch * sizes_.kv_heads * sizes_.total * columns) *
                   sizeof(T));
  }

  Status CheckLengths(const KernelArgs& args) const {
    if (!nonpad_) return absl::OkStatus();
    for (int64_t b = 0; b < sizes_.batch; ++b) {
      const int64_t length = Lengths(args)[b];
      if (length < 0 || length > sizes_.total) {
        return InvalidArgument("nonpad_kv_seqlen has {} where there are {} keys", length,
                               sizes_.total);
      }
    }
    return absl::OkStatus();
  }
  static const int64_t* Lengths(const KernelArgs& args) {
    return static_cast<const int64_t*>(args.inputs[6]);
  }

  // Past and new ones as [batch, heads, total, columns]: in the output or, if nothing reads that,
  // in `room`. Without past and output: the input itself.
  Keys Present(const KernelArgs& args, size_t input, size_t past_input, const HeadStrides& strides,
               int64_t columns, std::byte* room) const {
    const auto* fresh = static_cast<const T*>(args.inputs[input]);
    T* out = input < args.outputs.size() ? static_cast<T*>(args.outputs[input]) : nullptr;
    if (out == nullptr && sizes_.past == 0) return {fresh, strides};
    if (out == nullptr) out = reinterpret_cast<T*>(room);
    const auto* past = sizes_.past == 0 ? nullptr : static_cast<const T*>(args.inputs[past_input]);
    const int64_t units = sizes_.batch * sizes_.kv_heads;
    for (int64_t unit = 0; unit < units; ++unit) {
      T* to = out + unit * sizes_.total * columns;
      if (past != nullptr)
        to = std::copy_n(past + unit * sizes_.past * columns, sizes_.past * columns, to);
      const T* from =
          fresh + unit / sizes_.kv_heads * strides.batch + unit % sizes_.kv_heads * strides.head;
      for (int64_t row = 0; row < sizes_.total - sizes_.past; ++row) {
        to = std::copy_n(from + row * strides.row, columns, to);
      }
    }
    return {out, {sizes_.kv_heads * sizes_.total * columns, sizes_.total * columns, columns}};
  }

  // The value added to scores; null: nothing.
  const T* Mask(const KernelArgs& args, std::byte* room) const {
    if (args.inputs.size() < 4 || args.inputs[3] == nullptr) return nullptr;
    if (!bool_mask_) return static_cast<const T*>(args.inputs[3]);
    const auto* seen = static_cast<const bool*>(args.inputs[3]);
    T* added = reinterpret_cast<T*>(room);
    for (int64_t i = 0; i < mask_size_; ++i) {
      added[i] = seen[i] ? T{0} : -std::numeric_limits<T>::infinity();
    }
    return added;
  }

  // The keys that a query attends to, from first to last, relative to its position in q.
  std::pair<int64_t, int64_t> Seen(const KernelArgs& args, int64_t b) const {
    const int64_t offset = nonpad_ ? Lengths(args)[b] - sizes_.queries : sizes_.past;
    constexpr int64_t kAll = AttentionHead::kUnbounded;
    const int64_t first = left_ < 0 ? -kAll : offset - std::min(left_, kAll / 2);
    int64_t last = right_ < 0 ? kAll : offset + std::min(right_, kAll / 2);
    if (causal_) last = std::min(last, offset);
    return {first, last};
  }
  // The number of keys before those that no query attends to.
  int64_t KeysOf(const KernelArgs& args, int64_t b) const {
    return std::min(sizes_.mask_columns, nonpad_ ? Lengths(args)[b] : sizes_.total);
  }

  AttentionHead Head(const KernelArgs& args, const Bound& bound,
                     int64_t unit) const requires std::is_same_v<T, float> {
    const int64_t b = unit / sizes_.heads, h = unit % sizes_.heads;
    const int64_t kv = h / (sizes_.heads / sizes_.kv_heads);
    AttentionHead head = head_;
    head.q = static_cast<const T*>(args.inputs[0]) + sizes_.q.At(b, h);
    head.k = bound.k.data + bound.k.strides.At(b, kv);
    head.k_row = bound.k.strides.row;
    head.v = bound.v.data + bound.v.strides.At(b, kv);
    head.v_row = bound.v.strides.row;
    head.out = static_cast<T*>(args.outputs[0]) + sizes_.y.At(b, h);
    if (bound.mask != nullptr) head.mask = bound.mask + sizes_.mask.At(b, h);
    head.keys = KeysOf(args, b);
    std::tie(head.first_seen, head.last_seen) = Seen(args, b);
    return head;
  }

  Status RunFormula(const KernelArgs& args, const Bound& bound) const {
    const int64_t rows = sizes_.batch * sizes_.heads * sizes_.queries;
    const int64_t work = rows * sizes_.total * (sizes_.head_size + sizes_.value_size);
    constexpr int64_t kWorthSharing = 200'000;
    const int64_t parts =
        work < kWorthSharing ? 1 : std::min<int64_t>(rows, int64_t{4} * args.team.width());
    const StopPoll poll;
    args.team.For(static_cast<int>(parts), [&](int part, int worker) {
      const size_t slot = args.team.width() == 1 ? 0 : static_cast<size_t>(worker);
      double* scores = reinterpret_cast<double*>(bound.work) + slot * SlotScores();
      StopPoll own = poll;
      for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
        if (own.Stopped(work / rows)) return;
        FormulaRow(args, bound, row, scores);
      }
    });
    return poll.Result();
  }

  void FormulaRow(const KernelArgs& args, const Bound& bound, int64_t row, double* scores) const {
    const int64_t i = row % sizes_.queries, unit = row / sizes_.queries;
    const int64_t b = unit / sizes_.heads, h = unit % sizes_.heads;
    const int64_t kv = h / (sizes_.heads / sizes_.kv_heads);
    const auto [first, last] = Seen(args, b);
    const Formula<T> formula{
        .sizes = sizes_,
        .scale = scale_,
        .softcap = softcap_,
        .output_mode = output_mode_,
        .q = static_cast<const T*>(args.inputs[0]) + sizes_.q.At(b, h) + i * sizes_.q.row,
        .k = bound.k.data + bound.k.strides.At(b, kv),
        .k_strides = bound.k.strides,
        .mask = bound.mask == nullptr ? nullptr
                                      : bound.mask + sizes_.mask.At(b, h) + i * sizes_.mask.row,
        .mask_column = sizes_.mask.column,
        .masked_from = KeysOf(args, b),
        .first_seen = first + i,
        .last_seen = last + i};
    T* qk = args.outputs.size() > 3 ? static_cast<T*>(args.outputs[3]) : nullptr;
    formula.Weights(scores, qk == nullptr ? nullptr : qk + row * sizes_.total);
    const T* v = bound.v.data + bound.v.strides.At(b, kv);
    T* y = static_cast<T*>(args.outputs[0]) + sizes_.y.At(b, h) + i * sizes_.y.row;
    for (int64_t c = 0; c < sizes_.value_size; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < sizes_.total; ++j) {
        // Hidden values may be anything, including infinities.
        if (scores[j] != 0) sum += scores[j] * static_cast<double>(v[j * bound.v.strides.row + c]);
      }
      y[c] = static_cast<T>(sum);
    }
  }

  AttentionSizes sizes_;
  double scale_ = 1, softcap_ = 0;
  int64_t output_mode_ = 0;
  bool causal_ = false, by_formula_ = false, bool_mask_ = false, nonpad_ = false;
  int64_t left_ = -1, right_ = -1;
  int64_t mask_size_ = 0;
  AttentionHead head_;
  AttentionHeads heads_;
  int width_ = 1;
};

StatusOr<std::unique_ptr<Kernel>> CompileBlocks(const AttentionSizes& sizes,
                                                const CompileContext& context) {
  if (context.inputs[0].dtype != DType::kFloat) return Unimplemented("it computes float32");
  if (context.outputs.size() > 3) return Unimplemented("it keeps no scores for qk_matmul_output");
  if (context.attributes.Int("softmax_precision", 1) == 11) {
    return Unimplemented("its softmax is in float32, not in float64");
  }
  return OnnxAttention<float>::Make(sizes, false, context);
}

StatusOr<std::unique_ptr<Kernel>> CompileFormula(const AttentionSizes& sizes,
                                                 const CompileContext& context) {
  return DispatchFloat(context.inputs[0].dtype,
                       [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
                         return OnnxAttention<T>::Make(sizes, true, context);
                       });
}

StatusOr<std::unique_ptr<Kernel>> CompileOnnxAttention(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const AttentionSizes sizes, AttentionSizes::Of(context));
  return CompileFirst(AttentionImplementations(), sizes, context);
}

// Requests are independent; a mask of rank 4 may have an entry for each.
StatusOr<AxisMap> AxesOfOnnxAttention(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, (FirstAxis<0, 1, 2, 4, 5, 6>(context)));
  if (context.has_input(3)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 3));
    if (rank == 4) map.inputs[3] = {.labels = {0}, .broadcasts = true};
  }
  return map;
}

}  // namespace

std::span<const Implementation<AttentionSizes>> AttentionImplementations() {
  static constexpr Implementation<AttentionSizes> kTable[] = {
      {"blocks of keys", CompileBlocks},
      {"formula", CompileFormula},
  };
  return kTable;
}

void RegisterOnnxAttention(OperatorRegistry& registry) {
  registry.Add({.name = "Attention",
                .min_opset = 23,
                .min_inputs = 3,
                .max_inputs = 7,
                .max_outputs = 4,
                .input_types = {kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes | kBoolType,
                                kFloatTypes, kFloatTypes, TypeSet{DType::kInt64}},
                .infer = InferOnnxAttention,
                .axes = AxesOfOnnxAttention,
                .compile = CompileOnnxAttention});
}

}  // namespace chairlift
