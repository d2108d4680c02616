// chairlift::MixtureOfExperts: each token passes through its best experts, which are small
// networks of two layers: y = Σ weight · (W2 · f(W1 · x + b1) + b2). This is ONNX Runtime's MoE and
// QMoE.
//
// Inputs, as in QMoE: tokens [T, h] and router logits [T, E]. Then weights [E, rows, columns],
// scales and bias [E, rows] of W1, of W2 and, for gates, of W3. Then the zero points of the three.
// Weights are float32, or uint8 with 4 or 8 bits per code, the lower half of a byte first. Then
// scales are [E, rows], or [E, rows, columns / block_size], and zero points are packed like weights
// (default: half of the range).
//
// Every product is computed for one token and one row, so a token's answer does not depend on the
// other tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/axis_map.h"
#include "ops/quantization/quantization.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

enum class ExpertActivation : uint8_t { kIdentity, kRelu, kGelu, kSilu, kSwiglu };

struct ExpertRules {
  int64_t top = 1;
  bool normalises = false;
  bool sparse_mixer = false;
  ExpertActivation activation = ExpertActivation::kRelu;
  int64_t fusion = 0;  // gates and values in W1: 0 not fused, 1 interleaved, 2 gates first
  float alpha = 1, beta = 0, limit = std::numeric_limits<float>::infinity();
};

StatusOr<ExpertRules> ReadExpertRules(const Attributes& a) {
  constexpr std::pair<std::string_view, ExpertActivation> kNames[] = {
      {"identity", ExpertActivation::kIdentity}, {"relu", ExpertActivation::kRelu},
      {"gelu", ExpertActivation::kGelu},         {"silu", ExpertActivation::kSilu},
      {"swiglu", ExpertActivation::kSwiglu},
  };
  ExpertRules rules;
  rules.top = a.Int("k", 1);
  rules.normalises = a.Int("normalize_routing_weights", 0) != 0;
  rules.sparse_mixer = a.Int("use_sparse_mixer", 0) != 0;
  const std::string name = a.String("activation_type", "relu");
  const auto* const found = std::find_if(std::begin(kNames), std::end(kNames),
                                         [&](const auto& entry) { return entry.first == name; });
  if (found == std::end(kNames)) {
    return Unimplemented(
        "activation_type '{}'; identity, relu, gelu, silu and swiglu are supported", name);
  }
  rules.activation = found->second;
  rules.fusion = a.Int("swiglu_fusion", 0);
  if (rules.fusion < 0 || rules.fusion > 2) {
    return InvalidArgument("swiglu_fusion is {}; it must be 0, 1 or 2", rules.fusion);
  }
  if (rules.activation != ExpertActivation::kSwiglu) rules.fusion = 0;
  rules.alpha = a.Float("activation_alpha", 1.0f);
  rules.beta = a.Float("activation_beta", 0.0f);
  rules.limit = a.Float("swiglu_limit", rules.limit);
  if (!(rules.limit >= 0)) return InvalidArgument("swiglu_limit is {}", rules.limit);
  if (rules.sparse_mixer && rules.top != 2) {
    return Unimplemented("use_sparse_mixer with k = {}; it is supported with k = 2", rules.top);
  }
  return rules;
}

// One of the three layers of all experts.
struct ExpertLayer {
  int weights, scales, bias, zeros;  // inputs
  const char* name;
  const char* bits_name;
};
constexpr std::array<ExpertLayer, 3> kExpertLayers = {{
    {2, 3, 4, 11, "fc1", "fc1_expert_weight_bits"},
    {5, 6, 7, 12, "fc2", "fc2_expert_weight_bits"},
    {8, 9, 10, 13, "fc3", "fc3_expert_weight_bits"},
}};

struct ExpertWeights {
  int64_t rows = 0, columns = 0;
  int64_t bits = 0;               // 0: float32
  int64_t block = 0, blocks = 1;  // columns per scale, and scales per row
};

Status CheckExpertShape(const InferContext& context, int input, const char* layer, const char* what,
                        const Shape& wanted) {
  if (!context.has_input(input) || !context.shape(input).concrete()) return absl::OkStatus();
  const Shape have = context.shape(input).ToShape();
  if (have == wanted) return absl::OkStatus();
  return InvalidArgument("{} of {} are {}; they must be {}", what, layer, have.ToString(),
                         wanted.ToString());
}

// Bits per weight; 0 if weights are floats.
StatusOr<int64_t> ExpertBits(const Attributes& a, const ExpertLayer& layer, DType dtype) {
  if (dtype != DType::kUInt8) return int64_t{0};
  const int64_t bits = a.Int(layer.bits_name, a.Int("expert_weight_bits", 4));
  if (bits == 4 || bits == 8) return bits;
  return Unimplemented("weights of {} have {} bits; 4 and 8 are supported", layer.name, bits);
}

// For `rows` and `columns` of a layer; the shapes are not checked.
StatusOr<ExpertWeights> ExpertWeightsOf(const Attributes& a, const ExpertLayer& layer, DType dtype,
                                        int64_t rows, int64_t columns) {
  ExpertWeights w{.rows = rows, .columns = columns, .block = std::max<int64_t>(columns, 1)};
  CHAIRLIFT_ASSIGN_OR_RETURN(w.bits, ExpertBits(a, layer, dtype));
  if (w.bits == 0) return w;
  const int64_t block = a.Int("block_size", 0);
  if (block < 0) return InvalidArgument("block_size is {}", block);
  if (block > 0) w.block = block;
  if (columns % w.block != 0 || columns % (8 / w.bits) != 0) {
    return InvalidArgument("{} columns of {} are not divisible into blocks of {} and whole bytes",
                           columns, layer.name, w.block);
  }
  w.blocks = columns / w.block;
  return w;
}

Status CheckExpertLayer(const InferContext& context, const ExpertLayer& layer, int64_t experts,
                        int64_t rows, int64_t columns) {
  const DType dtype = context.dtype(layer.weights);
  CHAIRLIFT_ASSIGN_OR_RETURN(const ExpertWeights w,
                             ExpertWeightsOf(context.attributes(), layer, dtype, rows, columns));
  const int64_t pack = w.bits == 4 ? 2 : 1;
  const auto check = [&](int input, const char* what, const Shape& wanted) {
    return CheckExpertShape(context, input, layer.name, what, wanted);
  };
  CHAIRLIFT_RETURN_IF_ERROR(check(layer.weights, "weights", Shape{experts, rows, columns / pack}));
  CHAIRLIFT_RETURN_IF_ERROR(check(layer.bias, "biases", Shape{experts, rows}));
  if (w.bits == 0) {
    if (context.has_input(layer.scales) || context.has_input(layer.zeros)) {
      return InvalidArgument("{} has scales or zero points, but its weights are floats",
                             layer.name);
    }
    return absl::OkStatus();
  }
  if (!context.has_input(layer.scales)) {
    return InvalidArgument("the scales of {} are missing", layer.name);
  }
  const bool blocked = context.attributes().Int("block_size", 0) > 0;
  const auto packed = [&](int64_t n) { return (n + pack - 1) / pack; };
  CHAIRLIFT_RETURN_IF_ERROR(check(layer.scales, "scales",
                                  blocked ? Shape{experts, rows, w.blocks} : Shape{experts, rows}));
  return check(layer.zeros, "zero points",
               blocked ? Shape{experts, rows, packed(w.blocks)} : Shape{experts, packed(rows)});
}

struct ExpertSizes {
  int64_t tokens = 0, hidden = 0, experts = 0, inner = 0;
  int64_t fused = 1;  // rows of W1 for each of `inner`
};

Status InferMixtureOfExperts(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ExpertRules rules, ReadExpertRules(context.attributes()));
  const SymbolicShape &x = context.shape(0), &router = context.shape(1);
  for (const int i : {2, 5}) {
    if (!context.has_input(i)) return InvalidArgument("input {}, weights, is missing", i);
  }
  const bool gated = context.has_input(8);
  if (rules.activation == ExpertActivation::kSwiglu && gated == (rules.fusion != 0)) {
    return InvalidArgument(
        "swiglu takes its gates from fc1, fused (swiglu_fusion 1 or 2), or its values from fc3");
  }
  context.set_output(0, DType::kFloat, x);
  if (!x.has_rank() || !router.has_rank()) return absl::OkStatus();
  if (x.rank() != 2 || router.rank() != 2) {
    return InvalidArgument("tokens are {} and router logits {}; both must have 2 dimensions",
                           x.ToString(), router.ToString());
  }
  if (x[0].known() && router[0].known() && x[0].value() != router[0].value()) {
    return InvalidArgument("tokens are {}, but router logits {}", x.ToString(), router.ToString());
  }
  const SymbolicShape& w2 = context.shape(5);
  if (!x[1].known() || !router[1].known() || !w2.concrete()) return absl::OkStatus();
  const int64_t hidden = x[1].value(), experts = router[1].value();
  if (rules.top < 1 || rules.top > experts) {
    return InvalidArgument("k is {}; it must be from 1 to the {} experts", rules.top, experts);
  }
  if (w2.rank() != 3) return InvalidArgument("weights of fc2 are {}", w2.ToString());
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t bits,
                             ExpertBits(context.attributes(), kExpertLayers[1], context.dtype(5)));
  const int64_t inner = w2[2].value() * (bits == 4 ? 2 : 1);
  const int64_t fused = rules.fusion == 0 ? 1 : 2;
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckExpertLayer(context, kExpertLayers[0], experts, fused * inner, hidden));
  CHAIRLIFT_RETURN_IF_ERROR(CheckExpertLayer(context, kExpertLayers[1], experts, hidden, inner));
  return gated ? CheckExpertLayer(context, kExpertLayers[2], experts, inner, hidden)
               : absl::OkStatus();
}

// The sum of a[i] · b[i], in an order that depends on n alone.
float ExpertDot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> sums = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < n; ++i) sums[static_cast<size_t>(i % kLanes)] += a[i] * b[i];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// A layer's operands in one run.
struct ExpertOperands {
  ExpertWeights w;
  const void* weights = nullptr;
  const float *scales = nullptr, *bias = nullptr;
  const uint8_t* zeros = nullptr;
  bool blocked = false;

  // The row in float32: dequantised to `wide`, or in place if weights are floats.
  const float* Row(int64_t expert, int64_t row, float* wide) const {
    const int64_t at = expert * w.rows + row;
    if (w.bits == 0) return static_cast<const float*>(weights) + at * w.columns;
    const bool halves = w.bits == 4;
    const auto code = [&](const uint8_t* bytes, int64_t i) -> int {
      return halves ? bytes[i / 2] >> (i % 2 * 4) & 15 : bytes[i];
    };
    const uint8_t* codes =
        static_cast<const uint8_t*>(weights) + at * (halves ? w.columns / 2 : w.columns);
    for (int64_t b = 0; b < w.blocks; ++b) {
      int zero = halves ? 8 : 128;
      if (zeros != nullptr && blocked) {
        zero = code(zeros + at * (halves ? (w.blocks + 1) / 2 : w.blocks), b);
      } else if (zeros != nullptr) {
        zero = code(zeros + expert * (halves ? (w.rows + 1) / 2 : w.rows), row);
      }
      const float scale = scales[at * w.blocks + b];
      for (int64_t i = b * w.block; i < (b + 1) * w.block; ++i) {
        wide[i] = static_cast<float>(code(codes, i) - zero) * scale;
      }
    }
    return wide;
  }
  float Bias(int64_t expert, int64_t row) const {
    return bias == nullptr ? 0 : bias[expert * w.rows + row];
  }
};

struct ExpertRoute {
  int64_t token, expert;
  float weight;
};

float ExpertSigmoid(float x) { return 1 / (1 + std::exp(-x)); }

class MixtureOfExperts final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<MixtureOfExperts>();
    CHAIRLIFT_ASSIGN_OR_RETURN(made->rules_, ReadExpertRules(context.attributes));
    made->blocked_ = context.attributes.Int("block_size", 0) > 0;
    ExpertSizes& s = made->sizes_;
    s.tokens = context.inputs[0].shape[0];
    s.hidden = context.inputs[0].shape[1];
    s.experts = context.inputs[1].shape[1];
    s.fused = made->rules_.fusion == 0 ? 1 : 2;
    s.inner = context.inputs[2].shape[1] / s.fused;
    const std::array<std::pair<int64_t, int64_t>, 3> sizes = {
        {{s.fused * s.inner, s.hidden}, {s.hidden, s.inner}, {s.inner, s.hidden}}};
    for (size_t i = 0; i < kExpertLayers.size(); ++i) {
      const ExpertLayer& layer = kExpertLayers[i];
      if (!context.has_input(layer.weights)) continue;
      CHAIRLIFT_ASSIGN_OR_RETURN(
          made->layers_[i],
          ExpertWeightsOf(context.attributes, layer,
                          context.inputs[static_cast<size_t>(layer.weights)].dtype, sizes[i].first,
                          sizes[i].second));
    }
    return std::unique_ptr<Kernel>(std::move(made));
  }

  // Routes are computed in chunks of tokens, which bounds this.
  size_t scratch_bytes() const override {
    return static_cast<size_t>(ChunkTokens() * rules_.top * (sizes_.inner + sizes_.hidden)) *
           sizeof(float);
  }

  Status Run(const KernelArgs& args) const override {
    std::array<ExpertOperands, 3> layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto input = [&](int at) -> const void* {
        return at < std::ssize(args.inputs) ? args.inputs[static_cast<size_t>(at)] : nullptr;
      };
      layers[i] = {.w = layers_[i],
                   .weights = input(kExpertLayers[i].weights),
                   .scales = static_cast<const float*>(input(kExpertLayers[i].scales)),
                   .bias = static_cast<const float*>(input(kExpertLayers[i].bias)),
                   .zeros = static_cast<const uint8_t*>(input(kExpertLayers[i].zeros)),
                   .blocked = blocked_};
    }
    for (int64_t first = 0; first < sizes_.tokens; first += ChunkTokens()) {
      RunChunk(args, layers, first, std::min(sizes_.tokens, first + ChunkTokens()));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kMostRoutes = 2048;
  static constexpr int64_t kMultiplyAddsToShare = 1 << 15;

  int64_t ChunkTokens() const {
    return std::clamp<int64_t>(kMostRoutes / rules_.top, 1, std::max<int64_t>(sizes_.tokens, 1));
  }

  // The expert with the largest value that is not taken; the first of equal ones.
  int64_t Best(const std::vector<float>& values, const std::vector<bool>& taken) const {
    int64_t best = -1;
    for (int64_t e = 0; e < sizes_.experts; ++e) {
      const auto at = static_cast<size_t>(e);
      if (!taken[at] && (best < 0 || values[at] > values[static_cast<size_t>(best)])) best = e;
    }
    return best;
  }

  void Softmax(std::vector<float>& values) const {
    const float most = *std::max_element(values.begin(), values.end());
    double sum = 0;
    for (float& v : values) sum += v = std::exp(v - most);
    for (float& v : values) v = static_cast<float>(v / sum);
  }

  // The best experts of a token: appended to `routes`.
  void Route(const float* logits, int64_t token, std::vector<ExpertRoute>& routes) const {
    std::vector<float> scores(logits, logits + sizes_.experts);
    std::vector<bool> taken(static_cast<size_t>(sizes_.experts), false);
    if (rules_.sparse_mixer) return RouteSparsely(scores, token, taken, routes);
    Softmax(scores);
    float sum = 0;
    for (int64_t i = 0; i < rules_.top; ++i) {
      const int64_t expert = Best(scores, taken);
      taken[static_cast<size_t>(expert)] = true;
      routes.push_back({token, expert, scores[static_cast<size_t>(expert)]});
      sum += routes.back().weight;
    }
    if (!rules_.normalises) return;
    for (size_t i = routes.size() - static_cast<size_t>(rules_.top); i < routes.size(); ++i) {
      routes[i].weight /= sum;
    }
  }

  // SparseMixer (Liu et al., "GRIN: GRadient-INformed MoE", 2024) without its training: each
  // choice's weight is its share among the scores that are close to it.
  void RouteSparsely(std::vector<float>& scores, int64_t token, std::vector<bool>& taken,
                     std::vector<ExpertRoute>& routes) const {
    constexpr float kJitter = 0.01f;
    for (int64_t i = 0; i < rules_.top; ++i) {
      const int64_t expert = Best(scores, taken);
      const float most = scores[static_cast<size_t>(expert)];
      std::vector<float> close(scores.size());
      for (size_t e = 0; e < scores.size(); ++e) {
        const float factor = std::max(std::abs(scores[e]), most);
        const bool far = taken[e] || (most - scores[e]) / factor > 2 * kJitter;
        close[e] = far ? -std::numeric_limits<float>::infinity() : scores[e];
      }
      Softmax(close);
      taken[static_cast<size_t>(expert)] = true;
      routes.push_back({token, expert, close[static_cast<size_t>(expert)]});
    }
  }

  float Activated(float gate, float value, bool has_value) const {
    switch (rules_.activation) {
      case ExpertActivation::kSwiglu:
        gate = std::min(gate, rules_.limit);
        value = std::clamp(value, -rules_.limit, rules_.limit);
        return gate * ExpertSigmoid(rules_.alpha * gate) * (value + rules_.beta);
      case ExpertActivation::kRelu:
        gate = gate < 0 ? 0 : gate;
        break;
      case ExpertActivation::kSilu:
        gate *= ExpertSigmoid(gate);
        break;
      case ExpertActivation::kGelu:
        gate *= 0.5f * (1 + std::tanh(0.7978845608f * (gate + 0.044715f * gate * gate * gate)));
        break;
      case ExpertActivation::kIdentity:
        break;
    }
    return has_value ? gate * value : gate;
  }

  void RunChunk(const KernelArgs& args, const std::array<ExpertOperands, 3>& layers, int64_t first,
                int64_t last) const {
    const auto* x = static_cast<const float*>(args.inputs[0]);
    const auto* logits = static_cast<const float*>(args.inputs[1]);
    auto* y = static_cast<float*>(args.outputs[0]);
    const ExpertSizes& s = sizes_;
    std::vector<ExpertRoute> routes;
    for (int64_t t = first; t < last; ++t) Route(logits + t * s.experts, t, routes);
    // By expert: the routes that use it.
    std::vector<std::vector<int64_t>> of_expert(static_cast<size_t>(s.experts));
    for (int64_t r = 0; r < std::ssize(routes); ++r) {
      of_expert[static_cast<size_t>(routes[static_cast<size_t>(r)].expert)].push_back(r);
    }
    std::vector<int64_t> used;
    for (int64_t e = 0; e < s.experts; ++e) {
      if (!of_expert[static_cast<size_t>(e)].empty()) used.push_back(e);
    }
    auto* const inner = static_cast<float*>(args.scratch);
    float* const results = inner + std::ssize(routes) * s.inner;
    // Calls body(expert, row, its routes, room for two rows) for all rows of the used experts.
    const auto for_rows = [&](int64_t rows, int64_t columns, const auto& body) {
      const int64_t work = std::ssize(routes) * rows * columns;
      ForRanges(args.team, std::ssize(used) * rows, work, kMultiplyAddsToShare,
                [&](int64_t from, int64_t to) {
                  std::vector<float> wide(static_cast<size_t>(2 * columns));
                  for (int64_t i = from; i < to; ++i) {
                    const int64_t expert = used[static_cast<size_t>(i / rows)];
                    body(expert, i % rows, of_expert[static_cast<size_t>(expert)], wide.data());
                  }
                });
    };
    const bool separate = layers[2].weights != nullptr, gated = separate || s.fused == 2;
    const ExpertOperands& values = separate ? layers[2] : layers[0];
    for_rows(
        s.inner, s.hidden,
        [&](int64_t expert, int64_t row, const std::vector<int64_t>& mine, float* wide) {
          int64_t gate_row = row, value_row = row;
          if (rules_.fusion == 1) gate_row = 2 * row, value_row = 2 * row + 1;
          if (rules_.fusion == 2) value_row = s.inner + row;
          const float* gate = layers[0].Row(expert, gate_row, wide);
          const float* value = gated ? values.Row(expert, value_row, wide + s.hidden) : nullptr;
          for (const int64_t r : mine) {
            const float* token = x + routes[static_cast<size_t>(r)].token * s.hidden;
            const float g = ExpertDot(gate, token, s.hidden) + layers[0].Bias(expert, gate_row);
            const float v =
                gated ? ExpertDot(value, token, s.hidden) + values.Bias(expert, value_row) : 0;
            inner[r * s.inner + row] = Activated(g, v, gated);
          }
        });
    for_rows(s.hidden, s.inner,
             [&](int64_t expert, int64_t row, const std::vector<int64_t>& mine, float* wide) {
               const float* weights = layers[1].Row(expert, row, wide);
               for (const int64_t r : mine) {
                 results[r * s.hidden + row] =
                     ExpertDot(weights, inner + r * s.inner, s.inner) + layers[1].Bias(expert, row);
               }
             });
    std::fill(y + first * s.hidden, y + last * s.hidden, 0.0f);
    for (int64_t r = 0; r < std::ssize(routes); ++r) {
      const ExpertRoute& route = routes[static_cast<size_t>(r)];
      if (route.weight == 0) continue;  // so that overflow in it does not matter
      for (int64_t i = 0; i < s.hidden; ++i) {
        y[route.token * s.hidden + i] += route.weight * results[r * s.hidden + i];
      }
    }
  }

  ExpertRules rules_;
  ExpertSizes sizes_;
  std::array<ExpertWeights, 3> layers_;
  bool blocked_ = false;
};

}  // namespace

void RegisterMixtureOfExperts(OperatorRegistry& registry) {
  const TypeSet single{DType::kFloat}, codes{DType::kUInt8}, weights{DType::kFloat, DType::kUInt8};
  OperatorDef def;
  def.domain = "chairlift";
  def.name = "MixtureOfExperts";
  def.min_inputs = 3;
  def.max_inputs = 14;
  def.input_types = {single, single,  weights, single, single, weights, single,
                     single, weights, single,  single, codes,  codes,   codes};
  def.infer = InferMixtureOfExperts;
  def.axes = FirstAxis<0, 1>;  // tokens are independent
  def.compile = MixtureOfExperts::Compile;
  registry.Add(std::move(def));
}

}  // namespace chairlift
