// LinearAttention(query, key, value, past_state?, decay?, beta?) -> (output, present_state), in
// ONNX since opset 27.
//
// query is [batch, length, q_heads·d_k], key [batch, length, kv_heads·d_k], value [batch, length,
// kv_heads·d_v], states are [batch, kv_heads, d_k, d_v]. With S the state of a key head, token by
// token:
//   S ← exp(decay) · S                      in "gated" and "gated_delta"; one decay per head, or
//                                           per row of S
//   v ← beta · (v − Sᵀ·k)                   in "delta" and "gated_delta"; one beta per head, or
//                                           for all
//   S ← S + k ⊗ v
//   output ← scale · Sᵀ·query               for each of the q_heads / kv_heads queries of S
//
// The attribute chunk_size does not affect the result and is ignored.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "ops/attention/attention_operators.h"
#include "ops/axes.h"
#include "ops/axis_map.h"

namespace chairlift {
namespace {

constexpr int kPast = 3, kDecay = 4, kBeta = 5;

struct Rule {
  bool gated = false;  // has a decay
  bool delta = false;  // has a beta

  static StatusOr<Rule> Of(const Attributes& attributes) {
    const std::string name = attributes.String("update_rule", "gated_delta");
    if (name == "linear") return Rule{};
    if (name == "gated") return Rule{.gated = true};
    if (name == "delta") return Rule{.delta = true};
    if (name == "gated_delta") return Rule{.gated = true, .delta = true};
    return InvalidArgument("update_rule '{}' is not linear, gated, delta or gated_delta", name);
  }
};

struct Heads {
  int64_t q = 0, kv = 0;

  static StatusOr<Heads> Of(const Attributes& attributes) {
    const Heads heads{attributes.Int("q_num_heads", 0), attributes.Int("kv_num_heads", 0)};
    if (heads.q < 1 || heads.kv < 1 || heads.q % heads.kv != 0) {
      return InvalidArgument("q_num_heads is {}, not a positive multiple of kv_num_heads, {}",
                             heads.q, heads.kv);
    }
    return heads;
  }
};

Status CheckInputs(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Rule rule, Rule::Of(context.attributes()));
  const std::array<std::pair<int, bool>, 2> by_rule = {std::pair{kDecay, rule.gated},
                                                       std::pair{kBeta, rule.delta}};
  for (const auto& [i, wanted] : by_rule) {
    if (context.has_input(i) == wanted) continue;
    return InvalidArgument("update_rule '{}' {} the input {}",
                           context.attributes().String("update_rule", "gated_delta"),
                           wanted ? "needs" : "does not take", i == kDecay ? "decay" : "beta");
  }
  for (const int i : {0, 1, 2, kPast, kDecay, kBeta}) {
    if (!context.has_input(i)) continue;
    const int rank = i == kPast ? 4 : 3;
    if (context.shape(i).has_rank() && context.shape(i).rank() != rank) {
      return InvalidArgument("input {} has rank {}, not {}", i, context.shape(i).rank(), rank);
    }
    if (i != kPast && context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {} where the queries are {}", i,
                             DTypeName(context.dtype(i)), DTypeName(context.dtype(0)));
    }
  }
  return absl::OkStatus();
}

// The columns per head of input i.
StatusOr<Dim> HeadColumns(const InferContext& context, int i, int64_t heads) {
  const SymbolicShape& shape = context.shape(i);
  if (!shape.has_rank() || !shape[2].known()) return Dim::Unknown();
  if (shape[2].value() % heads != 0) {
    return InvalidArgument("{} heads do not divide the {} columns of input {}", heads,
                           shape[2].value(), i);
  }
  return Dim(shape[2].value() / heads);
}

Status InferLinearAttention(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckInputs(context));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Heads heads, Heads::Of(context.attributes()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim q_columns, HeadColumns(context, 0, heads.q));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim k_columns, HeadColumns(context, 1, heads.kv));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim v_columns, HeadColumns(context, 2, heads.kv));
  Dim batch, length, d_k = MergeDims(q_columns, k_columns), d_v = v_columns;
  for (int i = 0; i < 3; ++i) {
    if (!context.shape(i).has_rank()) continue;
    batch = MergeDims(batch, context.shape(i)[0]);
    length = MergeDims(length, context.shape(i)[1]);
  }
  if (context.has_input(kPast) && context.shape(kPast).has_rank()) {
    batch = MergeDims(batch, context.shape(kPast)[0]);
    d_k = MergeDims(d_k, context.shape(kPast)[2]);
    d_v = MergeDims(d_v, context.shape(kPast)[3]);
  }
  const std::array<Dim, 2> out_columns = {Dim(heads.q), d_v};
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, context.dtype(0),
                                      SymbolicShape({batch, length, Product(out_columns)})));
  if (context.num_outputs() < 2) return absl::OkStatus();
  return SetOutput(context, 1, context.dtype(context.has_input(kPast) ? kPast : 0),
                   SymbolicShape({batch, Dim(heads.kv), d_k, d_v}));
}

struct LinearAttentionSizes {
  Heads heads;
  int64_t batch = 0, length = 0;
  int64_t d_k = 0, d_v = 0;
  int64_t decays = 0;  // columns of decay, and of beta
  int64_t betas = 0;

  int64_t units() const { return batch * heads.kv; }
  int64_t state() const { return d_k * d_v; }

  static StatusOr<LinearAttentionSizes> Of(const CompileContext& context) {
    LinearAttentionSizes s;
    CHAIRLIFT_ASSIGN_OR_RETURN(s.heads, Heads::Of(context.attributes));
    const Shape& q = context.inputs[0].shape;
    const Shape& v = context.inputs[2].shape;
    s.batch = q[0];
    s.length = q[1];
    s.d_k = q[2] / s.heads.q;
    s.d_v = v[2] / s.heads.kv;
    // A worker needs one for its computation even if nothing reads present_state.
    CHAIRLIFT_RETURN_IF_ERROR(
        Shape({s.batch, s.heads.kv, s.d_k, s.d_v}).Checked(sizeof(float)).status());
    const auto check = [&](int i, const Shape& wanted) -> Status {
      if (!context.has_input(i) || context.inputs[i].shape == wanted) return absl::OkStatus();
      return InvalidArgument("input {} is {} where {} is needed", i,
                             context.inputs[i].shape.ToString(), wanted.ToString());
    };
    CHAIRLIFT_RETURN_IF_ERROR(check(1, {s.batch, s.length, s.heads.kv * s.d_k}));
    CHAIRLIFT_RETURN_IF_ERROR(check(2, {s.batch, s.length, s.heads.kv * s.d_v}));
    CHAIRLIFT_RETURN_IF_ERROR(check(kPast, {s.batch, s.heads.kv, s.d_k, s.d_v}));
    if (context.has_input(kDecay)) {
      s.decays = context.inputs[kDecay].shape[2];
      if (s.decays != s.heads.kv) s.decays = s.heads.kv * s.d_k;
      CHAIRLIFT_RETURN_IF_ERROR(check(kDecay, {s.batch, s.length, s.decays}));
    }
    if (context.has_input(kBeta)) {
      s.betas = context.inputs[kBeta].shape[2] == 1 ? 1 : s.heads.kv;
      CHAIRLIFT_RETURN_IF_ERROR(check(kBeta, {s.batch, s.length, s.betas}));
    }
    return s;
  }
};

class LinearAttention final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<LinearAttention>();
    CHAIRLIFT_ASSIGN_OR_RETURN(made->sizes_, LinearAttentionSizes::Of(context));
    CHAIRLIFT_ASSIGN_OR_RETURN(made->rule_, Rule::Of(context.attributes));
    const int64_t d_k = made->sizes_.d_k;
    made->scale_ = context.attributes.Float("scale", 0);
    if (made->scale_ == 0) {
      made->scale_ = d_k == 0 ? 1 : static_cast<float>(1 / std::sqrt(static_cast<double>(d_k)));
    }
    made->width_ = context.width;
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override { return static_cast<size_t>(width_) * SlotBytes(); }

  Status Run(const KernelArgs& args) const override {
    const int64_t units = sizes_.units();
    // Without columns, the number of heads is not bounded by memory.
    if (sizes_.d_v == 0 || (sizes_.d_k == 0 && sizes_.length == 0)) return absl::OkStatus();
    const double work = static_cast<double>(units) * static_cast<double>(sizes_.length) *
                        static_cast<double>(sizes_.state());
    constexpr double kWorthSharing = 50'000;
    const int64_t parts =
        work < kWorthSharing ? 1 : std::min<int64_t>(units, int64_t{4} * args.team.width());
    args.team.For(static_cast<int>(parts), [&](int part, int worker) {
      const size_t slot = args.team.width() == 1 ? 0 : static_cast<size_t>(worker);
      auto* room =
          reinterpret_cast<float*>(static_cast<std::byte*>(args.scratch) + slot * SlotBytes());
      for (int64_t unit = units * part / parts; unit < units * (part + 1) / parts; ++unit) {
        RunUnit(args, unit, room);
      }
    });
    return absl::OkStatus();
  }

 private:
  size_t SlotBytes() const {
    return (static_cast<size_t>(sizes_.state() + sizes_.d_v) * sizeof(float) + 63) / 64 * 64;
  }

  static const float* Input(const KernelArgs& args, int i) {
    return static_cast<const float*>(args.inputs[static_cast<size_t>(i)]);
  }

  // One key head of one sample. room: its state, then one value.
  void RunUnit(const KernelArgs& args, int64_t unit, float* room) const {
    const int64_t b = unit / sizes_.heads.kv, head = unit % sizes_.heads.kv;
    const int64_t count = sizes_.state();
    float* state = room;
    float* change = room + count;
    if (args.inputs.size() > kPast && args.inputs[kPast] != nullptr) {
      std::copy_n(Input(args, kPast) + unit * count, count, state);
    } else {
      std::fill_n(state, count, 0.0f);
    }
    for (int64_t t = 0; t < sizes_.length; ++t) {
      const int64_t token = b * sizes_.length + t;
      if (rule_.gated) Decay(Input(args, kDecay) + token * sizes_.decays, head, state);
      const float* k = Input(args, 1) + (token * sizes_.heads.kv + head) * sizes_.d_k;
      const float* v = Input(args, 2) + (token * sizes_.heads.kv + head) * sizes_.d_v;
      if (rule_.delta) {
        const float* beta = Input(args, kBeta) + token * sizes_.betas;
        Correct(state, k, v, sizes_.betas == 1 ? beta[0] : beta[head], change);
        v = change;
      }
      for (int64_t i = 0; i < sizes_.d_k; ++i) {
        float* row = state + i * sizes_.d_v;
        for (int64_t c = 0; c < sizes_.d_v; ++c) row[c] += k[i] * v[c];
      }
      const int64_t group = sizes_.heads.q / sizes_.heads.kv;
      for (int64_t h = head * group; h < (head + 1) * group; ++h) {
        const int64_t at = token * sizes_.heads.q + h;
        Read(state, Input(args, 0) + at * sizes_.d_k,
             static_cast<float*>(args.outputs[0]) + at * sizes_.d_v);
      }
    }
    if (args.outputs.size() > 1 && args.outputs[1] != nullptr) {
      std::copy_n(state, count, static_cast<float*>(args.outputs[1]) + unit * count);
    }
  }

  // decay: for one token.
  void Decay(const float* decay, int64_t head, float* state) const {
    const bool by_head = sizes_.decays == sizes_.heads.kv;
    const float of_head = by_head ? std::exp(decay[head]) : 0.0f;
    for (int64_t i = 0; i < sizes_.d_k; ++i) {
      const float factor = by_head ? of_head : std::exp(decay[head * sizes_.d_k + i]);
      float* row = state + i * sizes_.d_v;
      for (int64_t c = 0; c < sizes_.d_v; ++c) row[c] *= factor;
    }
  }

  // change ← beta · (v − stateᵀ·k)
  void Correct(const float* state, const float* k, const float* v, float beta,
               float* change) const {
    std::fill_n(change, sizes_.d_v, 0.0f);
    AddProduct(state, k, change);
    for (int64_t c = 0; c < sizes_.d_v; ++c) change[c] = beta * (v[c] - change[c]);
  }

  // out ← scale · stateᵀ·q
  void Read(const float* state, const float* q, float* out) const {
    std::fill_n(out, sizes_.d_v, 0.0f);
    AddProduct(state, q, out);
    for (int64_t c = 0; c < sizes_.d_v; ++c) out[c] *= scale_;
  }

  // out ← out + stateᵀ·x
  void AddProduct(const float* state, const float* x, float* out) const {
    for (int64_t i = 0; i < sizes_.d_k; ++i) {
      const float* row = state + i * sizes_.d_v;
      for (int64_t c = 0; c < sizes_.d_v; ++c) out[c] += x[i] * row[c];
    }
  }

  LinearAttentionSizes sizes_;
  Rule rule_;
  float scale_ = 1;
  int width_ = 1;
};

}  // namespace

void RegisterLinearAttention(OperatorRegistry& registry) {
  constexpr TypeSet kTypes = kHalfTypes | TypeSet{DType::kFloat};
  registry.Add({.name = "LinearAttention",
                .min_opset = 27,
                .min_inputs = 3,
                .max_inputs = 6,
                .max_outputs = 2,
                .input_types = {kTypes},
                .infer = InferLinearAttention,
                .axes = FirstAxis<0, 1, 2, 3, 4, 5>,
                .compile = LinearAttention::Compile});
}

}  // namespace chairlift
