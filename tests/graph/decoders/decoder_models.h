// Small decoders with seeded weights, in the form in which PyTorch's exporter and Hugging Face's
// write them.
#ifndef CHAIRLIFT_TESTS_GRAPH_DECODERS_DECODER_MODELS_H_
#define CHAIRLIFT_TESTS_GRAPH_DECODERS_DECODER_MODELS_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/model_builder.h"

namespace chairlift::testing {

struct DecoderSizes {
  int64_t layers = 2, heads = 4, kv_heads = 2, columns = 8, vocabulary = 61, positions = 64;
  unsigned seed = 1;
};

// Attention and its cache in one operator.
enum class FusedAttention {
  kNone,
  kGroupQuery,        // com.microsoft.GroupQueryAttention, which turns queries and keys itself
  kGroupQueryPacked,  // with queries, keys and values in one input
  kMultiHead,         // com.microsoft.MultiHeadAttention under a mask
  kMultiHeadCausal,   // which hides later tokens itself
  kOnnxCausal,        // ONNX's, of [batch, tokens, columns]
  kOnnxMasked,        // of [batch, heads, tokens, columns], under a mask of booleans
};

// What a test changes of an export.
struct DecoderForm {
  bool mask_input = true;
  bool position_input = false;
  int64_t sees_later = 0;        // tokens behind its own that a query sees: 0 in an honest model
  bool wrong_position = false;   // positions that start at 0 in every call
  bool first_positions = false;  // likewise, of a table: its first entries
  bool reads_cache = false;      // something else than attention reads the past
  bool angles_by_rows = false;   // rotary angles by Mul, a row for each frequency
  bool repeated_angles = false;  // each rotary angle twice, in the shape of the positions
  bool looked_up_mask = false;   // Llama: as torch.export writes attention_mask[arange, arange]
  int64_t sliding = 0;           // of looked_up_mask: tokens that a query sees; 0: all
  float softcap = 0;             // Llama: limits scores by a tanh; 0: none
  bool onnx_attention = false;   // Llama: ONNX's Attention, over the past and new keys joined
  bool dynamic = false;          // Llama: products as ONNX Runtime's dynamic quantiser writes them
  FusedAttention fused = FusedAttention::kNone;
  bool wrong_lengths = false;  // kGroupQuery: seqlens_k of the new tokens alone
  bool one_length = false;     // kGroupQuery: seqlens_k of no dimension
  int64_t window = -1;         // kGroupQuery: tokens that a query sees
  int64_t one_sided = 1;       // kMultiHeadCausal: its attribute
};

class DecoderBuilder {
 public:
  DecoderBuilder(const DecoderSizes& sizes, const DecoderForm& form)
      : s_(sizes),
        form_(form),
        random_(sizes.seed),
        b_(OfOnnx(form) || form.onnx_attention ? 23 : 17) {
    auto* import = b_.model().add_opset_import();
    import->set_domain("com.microsoft");
    import->set_version(1);
  }

  int64_t hidden() const { return s_.heads * s_.columns; }

  // GPT-2: learnt positions, one product for queries, keys and values, layer normalisation, and a
  // mask cut out of a constant triangle.
  std::string Gpt2() {
    Inputs(s_.heads);
    Weights("wte", {s_.vocabulary, hidden()}, 1.0);
    Weights("wpe", {s_.positions, hidden()}, 0.5);
    Node("Gather", {"wte", "input_ids"}, "tokens");
    const std::string positions = Positions();
    if (form_.first_positions) {
      Node("Slice", {"wpe", "zero_list", List("new_size"), "zero_list"}, "places");
    } else {
      Node("Gather", {"wpe", positions}, "places");
    }
    std::string x = Node("Add", {"tokens", "places"}, "x");
    auto* triangle = b_.Tensor("triangle", kBool, {1, 1, s_.positions, s_.positions});
    for (int64_t q = 0; q < s_.positions; ++q) {
      for (int64_t k = 0; k < s_.positions; ++k) {
        triangle->add_int32_data(static_cast<int>(k <= q + form_.sees_later));
      }
    }
    Scalar("least", std::numeric_limits<float>::lowest());
    Node("Slice", {"triangle", List("past_size"), List("total_size"), "two"}, "rows_seen");
    Node("Slice", {"rows_seen", "zero_list", List("total_size"), "three"}, "seen");
    std::string padding;
    if (form_.mask_input) {
      Node("Unsqueeze", {"attention_mask", "one_two"}, "mask4");
      Node("Cast", {"mask4"}, "mask_float").Int("to", 1);
      Scalar("float_one", 1.0f);
      Node("Sub", {"float_one", "mask_float"}, "not_mask");
      padding = Node("Mul", {"not_mask", "least"}, "padding");
    }
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      const std::string p = "h" + std::to_string(layer);
      const std::string normed = LayerNorm(x, p + ".ln_1");
      // A Conv1D: over flat rows.
      Node("Reshape", {normed, Ints(p + ".flat", {-1, hidden()})}, p + ".rows");
      Weights(p + ".c_attn", {hidden(), 3 * hidden()}, 1.5 / std::sqrt(hidden()));
      Weights(p + ".c_attn.bias", {3 * hidden()}, 0.1);
      Node("Gemm", {p + ".rows", p + ".c_attn", p + ".c_attn.bias"}, p + ".qkv_rows");
      Node("Concat", {List("batch"), List("new_size"), Ints(p + ".3h", {3 * hidden()})},
           p + ".qkv_shape")
          .Int("axis", 0);
      Node("Reshape", {p + ".qkv_rows", p + ".qkv_shape"}, p + ".qkv");
      b_.Node("Split", {p + ".qkv", Ints(p + ".thirds", {hidden(), hidden(), hidden()})},
              {p + ".q", p + ".k", p + ".v"})
          .Int("axis", 2);
      const std::string q = Heads(p + ".q", s_.heads),
                        k = Grow(Heads(p + ".k", s_.heads), layer, true),
                        v = Grow(Heads(p + ".v", s_.heads), layer, false);
      Node("Transpose", {k}, p + ".kt").Ints("perm", {0, 1, 3, 2});
      Node("MatMul", {q, p + ".kt"}, p + ".products");
      Scalar(p + ".root", static_cast<float>(std::sqrt(s_.columns)));
      Node("Div", {p + ".products", p + ".root"}, p + ".scaled");
      std::string scores = Node("Where", {"seen", p + ".scaled", "least"}, p + ".masked");
      if (!padding.empty()) scores = Node("Add", {scores, padding}, p + ".scores");
      Node("Softmax", {scores}, p + ".weights").Int("axis", -1);
      x = Attended(p, x, v);
      const std::string inner = LayerNorm(x, p + ".ln_2");
      x = Node("Add", {x, Mlp(p, inner)}, p + ".out");
    }
    x = LayerNorm(x, "ln_f");
    Weights("lm_head", {hidden(), s_.vocabulary}, 1.0);
    Node("MatMul", {x, "lm_head"}, "logits");
    return Finish();
  }

  // Llama: rotary positions, grouped queries, RMS normalisation, and a mask of comparisons.
  std::string Llama() {
    Inputs(s_.kv_heads);
    Weights("embed", {s_.vocabulary, hidden()}, 1.0);
    std::string x = Node("Gather", {"embed", "input_ids"}, "x");
    Rotary();
    const std::string mask = form_.looked_up_mask ? LookedUpMask() : ComparedMask();
    if (form_.fused != FusedAttention::kNone) CacheInputs(mask);
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      const std::string p = "layers." + std::to_string(layer);
      const std::string normed = RmsNorm(x, p + ".input_norm");
      if (form_.fused != FusedAttention::kNone) {
        x = Gated(p, Node("Add", {x, Fused(p, normed, layer)}, p + ".residual"));
        continue;
      }
      const std::string q = Turned(Heads(Linear(normed, p + ".q", hidden()), s_.heads));
      const int64_t narrow = s_.kv_heads * s_.columns;
      const std::string k =
          Repeated(Grow(Turned(Heads(Linear(normed, p + ".k", narrow), s_.kv_heads)), layer, true));
      const std::string v =
          Repeated(Grow(Heads(Linear(normed, p + ".v", narrow), s_.kv_heads), layer, false));
      if (form_.onnx_attention) {
        Node("Attention", {q, k, v, mask}, p + ".attended");
        x = Gated(p, Attended(p, x, v));
        continue;
      }
      Node("Transpose", {k}, p + ".kt").Ints("perm", {0, 1, 3, 2});
      Node("MatMul", {q, p + ".kt"}, p + ".products");
      Scalar(p + ".scale", static_cast<float>(1 / std::sqrt(s_.columns)));
      Node("Mul", {p + ".products", p + ".scale"}, p + ".scaled");
      std::string scaled = p + ".scaled";
      if (form_.softcap > 0) {
        const std::string cap = Scalar(p + ".cap", form_.softcap);
        Node("Tanh", {Node("Div", {scaled, cap}, p + ".shrunk")}, p + ".tanh");
        scaled = Node("Mul", {p + ".tanh", cap}, p + ".capped");
      }
      Node("Add", {scaled, mask}, p + ".scores");
      Node("Softmax", {p + ".scores"}, p + ".weights").Int("axis", -1);
      x = Gated(p, Attended(p, x, v));
    }
    x = RmsNorm(x, "norm");
    if (form_.dynamic) {
      Dynamic(x, "logits", hidden(), s_.vocabulary);
      return Finish();
    }
    Weights("lm_head", {hidden(), s_.vocabulary}, 1.0);
    Node("MatMul", {x, "lm_head"}, "logits");
    return Finish();
  }

 private:
  static bool OfOnnx(const DecoderForm& form) {
    return form.fused == FusedAttention::kOnnxCausal || form.fused == FusedAttention::kOnnxMasked;
  }
  bool OfGroups() const {
    return form_.fused == FusedAttention::kGroupQuery ||
           form_.fused == FusedAttention::kGroupQueryPacked;
  }

  // What attentions with their cache read beside it.
  void CacheInputs(const std::string& mask) {
    auto* cos = b_.Tensor("cos_cache", kFloat, {s_.positions, s_.columns / 2});
    auto* sin = b_.Tensor("sin_cache", kFloat, {s_.positions, s_.columns / 2});
    for (int64_t p = 0; p < s_.positions; ++p) {
      for (int64_t i = 0; i < s_.columns / 2; ++i) {
        const double angle =
            static_cast<double>(p) *
            std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s_.columns));
        cos->add_float_data(static_cast<float>(std::cos(angle)));
        sin->add_float_data(static_cast<float>(std::sin(angle)));
      }
    }
    if (OfGroups()) {
      if (form_.mask_input) {
        Node("ReduceSum", {form_.wrong_lengths ? "input_ids" : "attention_mask", "one_list"},
             "counted")
            .Int("keepdims", 0);
      } else {
        Node("Expand", {form_.wrong_lengths ? "new_size" : "total_size", List("batch")}, "counted");
      }
      if (form_.one_length) {
        Node("Sub", {"total_size", Integer("one_less", 1)}, "last_places");
      } else {
        Node("Sub", {"counted", "one_list"}, "last_places");
      }
      Node("Cast", {"last_places"}, "seqlens_k").Int("to", 6);
      Node("Cast", {"total_size"}, "total_sequence_length").Int("to", 6);
    }
    if (form_.fused == FusedAttention::kOnnxMasked) {
      Scalar("no_hiding", -1.0f);
      Node("Greater", {mask, "no_hiding"}, "seen_mask");
    }
    if (form_.fused == FusedAttention::kMultiHeadCausal && form_.mask_input) {
      Node("Cast", {"attention_mask"}, "key_mask").Int("to", 6);
    }
    mask_ = mask;
  }

  // com.microsoft's, but for ONNX's own.
  NodeBuilder Several(const std::string& op, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs) {
    NodeBuilder made = Add(op, inputs, outputs[0]);
    auto* proto = b_.proto().mutable_node(b_.proto().node_size() - 1);
    for (size_t i = 1; i < outputs.size(); ++i) proto->add_output(outputs[i]);
    if (op != "Attention") made.Domain("com.microsoft");
    return made;
  }

  std::string Fused(const std::string& p, const std::string& x, int64_t layer) {
    const int64_t narrow = s_.kv_heads * s_.columns;
    const std::string past = "past_key_values." + std::to_string(layer);
    const std::string present = "present." + std::to_string(layer);
    const std::vector<std::string> outputs = {p + ".attended", present + ".key",
                                              present + ".value"};
    std::string q = Linear(x, p + ".q", hidden()), k = Linear(x, p + ".k", narrow);
    std::string v = Linear(x, p + ".v", narrow);
    const auto turned = [&](const std::string& of, int64_t heads) {
      NodeBuilder made =
          Several("RotaryEmbedding", {of, Positions(), "cos_cache", "sin_cache"}, {of + ".turned"});
      made.Int("num_heads", heads);
      return of + ".turned";
    };
    if (OfGroups()) {
      if (form_.fused == FusedAttention::kGroupQueryPacked) {
        q = Node("Concat", {q, k, v}, p + ".qkv").Int("axis", 2);
        k = v = "";
      }
      Several("GroupQueryAttention",
              {q, k, v, past + ".key", past + ".value", "seqlens_k", "total_sequence_length",
               "cos_cache", "sin_cache"},
              outputs)
          .Int("num_heads", s_.heads)
          .Int("kv_num_heads", s_.kv_heads)
          .Int("do_rotary", form_.wrong_lengths ? 0 : 1)
          .Int("local_window_size", form_.window);
    } else if (OfOnnx(form_)) {
      for (auto& [of, heads] : {std::pair(&q, s_.heads), {&k, s_.kv_heads}, {&v, s_.kv_heads}}) {
        const bool masked = form_.fused == FusedAttention::kOnnxMasked;
        if (masked) *of = Heads(*of, heads);
        if (of != &v) *of = masked ? Turned(*of) : turned(*of, heads);
      }
      const bool masked = form_.fused == FusedAttention::kOnnxMasked;
      NodeBuilder made =
          Several("Attention", {q, k, v, masked ? "seen_mask" : "", past + ".key", past + ".value"},
                  outputs);
      if (!masked) {
        made.Int("is_causal", 1).Int("q_num_heads", s_.heads).Int("kv_num_heads", s_.kv_heads);
      } else {
        Node("Transpose", {p + ".attended"}, p + ".together").Ints("perm", {0, 2, 1, 3});
        Node("Reshape", {p + ".together", Ints(p + ".hidden", {0, 0, hidden()})}, p + ".joined");
        return Linear(p + ".joined", p + ".o", hidden());
      }
    } else {
      const bool causal = form_.fused == FusedAttention::kMultiHeadCausal;
      Several("MultiHeadAttention",
              {turned(q, s_.heads), turned(k, s_.kv_heads), v, "",
               causal && form_.mask_input ? "key_mask" : "", causal ? "" : mask_, past + ".key",
               past + ".value"},
              outputs)
          .Int("num_heads", s_.heads)
          .Int("unidirectional", causal ? form_.one_sided : 0);
    }
    return Linear(p + ".attended", p + ".o", hidden());
  }

  std::string Gated(const std::string& p, const std::string& x) {
    const std::string inner = RmsNorm(x, p + ".post_norm");
    const std::string gate = Linear(inner, p + ".gate", 2 * hidden());
    Node("Sigmoid", {gate}, p + ".sigmoid");
    Node("Mul", {gate, p + ".sigmoid"}, p + ".silu");
    Node("Mul", {p + ".silu", Linear(inner, p + ".up", 2 * hidden())}, p + ".gated");
    return Node("Add", {x, Linear(p + ".gated", p + ".down", hidden(), 2 * hidden())}, p + ".out");
  }

  NodeBuilder Add(const std::string& op, const std::vector<std::string>& inputs,
                  const std::string& out) {
    auto* node = b_.proto().add_node();
    node->set_op_type(op);
    node->set_name(out);
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(out);
    return NodeBuilder(node);
  }
  // Converts to the output's name.
  struct Made : NodeBuilder {
    Made(NodeBuilder builder, std::string name) : NodeBuilder(builder), out(std::move(name)) {}
    Made& Int(const std::string& name, int64_t value) {
      NodeBuilder::Int(name, value);
      return *this;
    }
    operator std::string() const { return out; }  // NOLINT(google-explicit-constructor)
    std::string out;
  };
  Made Node(const std::string& op, const std::vector<std::string>& inputs, const std::string& out) {
    return {Add(op, inputs, out), out};
  }

  void Weights(const std::string& name, const std::vector<int64_t>& dims, double scale,
               double around = 0) {
    auto* tensor = b_.proto().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(kFloat);
    int64_t count = 1;
    for (const int64_t dim : dims) {
      tensor->add_dims(dim);
      count *= dim;
    }
    // Not std::normal_distribution, whose numbers are the library's own.
    for (int64_t i = 0; i < count; ++i) {
      const double unit = static_cast<double>(random_() % 20001) / 10000 - 1;
      tensor->add_float_data(static_cast<float>(around + scale * unit));
    }
  }
  std::string Scalar(const std::string& name, float value) {
    b_.Tensor(name, kFloat, {})->add_float_data(value);
    return name;
  }
  std::string Integer(const std::string& name, int64_t value) {
    b_.Tensor(name, kInt64, {})->add_int64_data(value);
    return name;
  }
  std::string Ints(const std::string& name, const std::vector<int64_t>& values) {
    auto* tensor = b_.Tensor(name, kInt64, {static_cast<int64_t>(values.size())});
    for (const int64_t v : values) tensor->add_int64_data(v);
    return name;
  }
  // [1] of a size.
  std::string List(const std::string& size) {
    return Node("Unsqueeze", {size, "zero_list"}, "list" + std::to_string(count_++));
  }

  void Inputs(int64_t cached_heads) {
    cached_heads_ = cached_heads;
    b_.Input("input_ids", kInt64, {std::string("batch"), std::string("sequence")});
    if (form_.mask_input) {
      b_.Input("attention_mask", kInt64, {std::string("batch"), std::string("past + sequence")});
    }
    if (form_.position_input) {
      b_.Input("position_ids", kInt64, {std::string("batch"), std::string("sequence")});
    }
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      for (const char* what : {".key", ".value"}) {
        b_.Input("past_key_values." + std::to_string(layer) + what, kFloat,
                 {std::string("batch"), cached_heads, std::string("past"), s_.columns});
      }
    }
    Ints("zero_list", {0});
    Ints("one_list", {1});
    Ints("two", {2});
    Ints("three", {3});
    Ints("one_two", {1, 2});
    Ints("zero_one", {0, 1});
    Integer("zero", 0);
    Integer("one", 1);
    Integer("two_scalar", 2);
    Node("Shape", {"input_ids"}, "ids_shape");
    Node("Gather", {"ids_shape", "zero"}, "batch").Int("axis", 0);
    Node("Gather", {"ids_shape", "one"}, "new_size").Int("axis", 0);
    Node("Shape", {"past_key_values.0.key"}, "past_shape");
    Node("Gather", {"past_shape", "two_scalar"}, "past_size").Int("axis", 0);
    Node("Add", {"past_size", "new_size"}, "total_size");
    Node("Range",
         {form_.wrong_position ? "zero" : "past_size",
          form_.wrong_position ? "new_size" : "total_size", "one"},
         "cache_position");
  }

  // [batch, new] or [1, new].
  std::string Positions() {
    if (form_.position_input) return "position_ids";
    if (!positions_.empty()) return positions_;
    return positions_ = Node("Unsqueeze", {"cache_position", "zero_list"}, "positions");
  }

  void Rotary() {
    auto* tensor = b_.Tensor("inv_freq", kFloat, {1, s_.columns / 2, 1});
    for (int64_t i = 0; i < s_.columns / 2; ++i) {
      tensor->add_float_data(static_cast<float>(
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(s_.columns))));
    }
    Node("Unsqueeze", {Positions(), "one_list"}, "places3");
    Node("Cast", {"places3"}, "places_float").Int("to", 1);
    Node(form_.angles_by_rows ? "Mul" : "MatMul", {"inv_freq", "places_float"}, "angles_across");
    Node("Transpose", {"angles_across"}, "half_angles").Ints("perm", {0, 2, 1});
    if (form_.repeated_angles) {
      Node("Shape", {"half_angles"}, "angles_rows").Int("end", 2);
      Ints("angles_open", {-1});
      Node("Concat", {"angles_rows", "angles_open"}, "angles_shape").Int("axis", 0);
      Ints("twice", {1, 1, 1, 2});
      Node("Unsqueeze", {"half_angles", "angles_open"}, "angles4");
      Node("Expand", {"angles4", "twice"}, "angles_pairs");
      Node("Reshape", {"angles_pairs", "angles_shape"}, "angles");
    } else {
      Node("Concat", {"half_angles", "half_angles"}, "angles").Int("axis", -1);
    }
    Node("Cos", {"angles"}, "cos3");
    Node("Sin", {"angles"}, "sin3");
    Node("Unsqueeze", {"cos3", "one_list"}, "cos");
    Node("Unsqueeze", {"sin3", "one_list"}, "sin");
    Ints("half", {s_.columns / 2});
    Ints("all", {std::numeric_limits<int64_t>::max()});
  }
  // x·cos + rotate_half(x)·sin.
  std::string Turned(const std::string& x) {
    Node("Slice", {x, "zero_list", "half", "three"}, x + ".low");
    Node("Slice", {x, "half", "all", "three"}, x + ".high");
    Node("Neg", {x + ".high"}, x + ".negative");
    Node("Concat", {x + ".negative", x + ".low"}, x + ".turned").Int("axis", -1);
    Node("Mul", {x, "cos"}, x + ".cos");
    Node("Mul", {x + ".turned", "sin"}, x + ".sin");
    return Node("Add", {x + ".cos", x + ".sin"}, x + ".rotary");
  }

  // As transformers' models prepare it: least above the diagonal, times (key > position), and
  // least where the mask hides the key.
  std::string LookedUpMask() {
    Scalar("least", std::numeric_limits<float>::lowest());
    Scalar("float_zero", 0.0f);
    Node("Shape", {"input_ids"}, "new_list").Int("start", 1);
    Node("Squeeze", {"new_list"}, "new_squeezed");
    Node("Add", {"past_size", "new_squeezed"}, "total_squeezed");
    const auto place = [&](const std::string& range, const char* name, std::vector<int64_t> axes) {
      return Node("Unsqueeze", {range, Ints(std::string(name) + "_axes", axes)}, name);
    };
    place(Node("Range", {"zero", "batch", "one"}, "rows"), "rows4", {1, 2, 3});
    place("cache_position", "queries4", {0, 1, 3});
    place(Node("Range", {"zero", "total_squeezed", "one"}, "keys"), "keys4", {0, 1, 2});
    Node("Sub", {"keys4", Integer("later", form_.sees_later)}, "keys_seen");
    Node("LessOrEqual", {"keys_seen", "queries4"}, "before");
    std::string seen = "before";
    if (form_.sliding > 0) {
      Node("Sub", {"queries4", Integer("sliding", form_.sliding)}, "window_end");
      Node("Greater", {"keys4", "window_end"}, "near");
      seen = Node("And", {"near", "before"}, "near_before");
    }
    Ints("last_axis", {-1});
    Node("Max", {"rows4", "keys4"}, "rows_keys");
    Node("Shape", {"rows_keys"}, "places_shape");
    for (const std::string of : {"rows4", "keys4"}) {
      Node("Expand", {of, "places_shape"}, of + "_all");
      Node("Unsqueeze", {of + "_all", "last_axis"}, of + "_column");
    }
    Node("Concat", {"rows4_column", "keys4_column"}, "places").Int("axis", -1);
    Node("Cast", {"attention_mask"}, "mask_bool").Int("to", 9);
    Node("GatherND", {"mask_bool", "places"}, "counts");
    Node("And", {seen, "counts"}, "seen_counts");
    return Node("Where", {"seen_counts", "float_zero", "least"}, "mask");
  }

  std::string ComparedMask() {
    Node("Concat", {List("new_size"), List("total_size")}, "mask_shape").Int("axis", 0);
    Scalar("least", std::numeric_limits<float>::lowest());
    Node("Expand", {"least", "mask_shape"}, "all_least");
    Integer("above", 1 + form_.sees_later);
    Node("Trilu", {"all_least", "above"}, "triangle").Int("upper", 1);
    Node("Range", {"zero", "total_size", "one"}, "keys");
    Node("Reshape", {"cache_position", Ints("column", {-1, 1})}, "queries");
    if (form_.sees_later > 0) {
      Node("Sub", {"keys", Integer("later", form_.sees_later)}, "keys_seen");
    } else {
      Node("Identity", {"keys"}, "keys_seen");
    }
    Node("Greater", {"keys_seen", "queries"}, "hidden");
    Node("Cast", {"hidden"}, "hidden_float").Int("to", 1);
    Node("Mul", {"triangle", "hidden_float"}, "causal2");
    Node("Unsqueeze", {"causal2", "zero_one"}, "causal4");
    Node("Concat", {List("batch"), "one_list", List("new_size"), List("total_size")}, "mask4_shape")
        .Int("axis", 0);
    const std::string causal = Node("Expand", {"causal4", "mask4_shape"}, "causal");
    if (!form_.mask_input) return causal;
    Node("Unsqueeze", {"attention_mask", "one_two"}, "padding4");
    Node("Cast", {"padding4"}, "padding_float").Int("to", 1);
    Node("Add", {causal, "padding_float"}, "padded");
    Scalar("float_zero", 0.0f);
    Node("Equal", {"padded", "float_zero"}, "is_padding");
    return Node("Where", {"is_padding", "least", causal}, "mask");
  }

  std::string Linear(const std::string& x, const std::string& name, int64_t out, int64_t in = 0) {
    const int64_t rows = in == 0 ? hidden() : in;
    if (form_.dynamic) return Dynamic(x, name, rows, out);
    Weights(name + ".weight", {rows, out}, 1.5 / std::sqrt(static_cast<double>(rows)));
    return Node("MatMul", {x, name + ".weight"}, name);
  }
  std::string Dynamic(const std::string& x, const std::string& name, int64_t rows, int64_t out) {
    auto* weights = b_.Tensor(name + ".weight", onnx::TensorProto::INT8, {rows, out});
    for (int64_t i = 0; i < rows * out; ++i) {
      weights->add_int32_data(static_cast<int32_t>(random_() % 255) - 127);
    }
    const auto scale = static_cast<float>(1.5 / 127 / std::sqrt(static_cast<double>(rows)));
    b_.Node("DynamicQuantizeLinear", {x}, {name + ".q", name + ".scale", name + ".zero"});
    Node("MatMulInteger", {name + ".q", name + ".weight", name + ".zero"}, name + ".sums");
    Node("Cast", {name + ".sums"}, name + ".numbers").Int("to", 1);
    Node("Mul", {name + ".scale", Scalar(name + ".weight_scale", scale)}, name + ".scales");
    return Node("Mul", {name + ".numbers", name + ".scales"}, name);
  }
  // [batch, new, heads·columns] as [batch, heads, new, columns].
  std::string Heads(const std::string& x, int64_t heads) {
    Node("Concat", {List("batch"), List("new_size"), Ints(x + ".heads", {heads, s_.columns})},
         x + ".split_shape")
        .Int("axis", 0);
    Node("Reshape", {x, x + ".split_shape"}, x + ".split");
    Made made = Node("Transpose", {x + ".split"}, x + ".by_head");
    made.Ints("perm", {0, 2, 1, 3});
    return made;
  }
  std::string Grow(const std::string& x, int64_t layer, bool keys) {
    const std::string name = std::to_string(layer) + (keys ? ".key" : ".value");
    Made made = Node("Concat", {"past_key_values." + name, x}, "present." + name);
    made.Int("axis", 2);
    return made;
  }
  std::string Repeated(const std::string& x) {
    if (s_.heads == s_.kv_heads) return x;
    const int64_t times = s_.heads / s_.kv_heads;
    Node("Unsqueeze", {x, "two"}, x + ".5");
    Node("Concat",
         {List("batch"), Ints(x + ".kv", {s_.kv_heads, times}), List("total_size"),
          Ints(x + ".columns", {s_.columns})},
         x + ".expanded_shape")
        .Int("axis", 0);
    Node("Expand", {x + ".5", x + ".expanded_shape"}, x + ".expanded");
    Node("Concat",
         {List("batch"), Ints(x + ".h", {s_.heads}), List("total_size"),
          Ints(x + ".columns2", {s_.columns})},
         x + ".repeated_shape")
        .Int("axis", 0);
    return Node("Reshape", {x + ".expanded", x + ".repeated_shape"}, x + ".repeated");
  }
  // x + the projection of weights · v.
  std::string Attended(const std::string& p, const std::string& x, const std::string& v) {
    if (!form_.onnx_attention) Node("MatMul", {p + ".weights", v}, p + ".attended");
    Node("Transpose", {p + ".attended"}, p + ".together").Ints("perm", {0, 2, 1, 3});
    Node("Concat", {List("batch"), List("new_size"), Ints(p + ".hidden", {hidden()})},
         p + ".joined_shape")
        .Int("axis", 0);
    Node("Reshape", {p + ".together", p + ".joined_shape"}, p + ".joined");
    std::string out = Linear(p + ".joined", p + ".o", hidden());
    if (form_.reads_cache) {
      Add("ReduceMean", {v}, p + ".mean_all").Ints("axes", {1, 2, 3}).Int("keepdims", 0);
      Node("Reshape", {p + ".mean_all", Ints(p + ".ones", {-1, 1, 1})}, p + ".mean3");
      out = Node("Add", {out, p + ".mean3"}, p + ".with_mean");
    }
    return Node("Add", {x, out}, p + ".residual");
  }
  std::string LayerNorm(const std::string& x, const std::string& name) {
    Weights(name + ".weight", {hidden()}, 0.2, 1);
    Weights(name + ".bias", {hidden()}, 0.1);
    Made made = Node("LayerNormalization", {x, name + ".weight", name + ".bias"}, name);
    made.Int("axis", -1);
    return made;
  }
  std::string RmsNorm(const std::string& x, const std::string& name) {
    if (OfOnnx(form_) || form_.onnx_attention) {
      Weights(name + ".weight", {hidden()}, 0.2, 1);
      Made made = Node("RMSNormalization", {x, name + ".weight"}, name);
      made.Int("axis", -1);
      return made;
    }
    Scalar(name + ".two", 2.0f);
    Scalar(name + ".epsilon", 1e-6f);
    Node("Pow", {x, name + ".two"}, name + ".square");
    Add("ReduceMean", {name + ".square"}, name + ".mean").Ints("axes", {-1});
    Node("Add", {name + ".mean", name + ".epsilon"}, name + ".more");
    Node("Sqrt", {name + ".more"}, name + ".root");
    Node("Div", {x, name + ".root"}, name + ".normed");
    Weights(name + ".weight", {hidden()}, 0.2, 1);
    return Node("Mul", {name + ".weight", name + ".normed"}, name);
  }
  std::string Mlp(const std::string& p, const std::string& x) {
    const std::string wide = Linear(x, p + ".fc", 4 * hidden());
    Node("Tanh", {wide}, p + ".active");
    return Linear(p + ".active", p + ".proj", hidden(), 4 * hidden());
  }

  std::string Finish() {
    b_.Output("logits", kFloat, {std::string("batch"), std::string("sequence"), s_.vocabulary});
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      for (const char* what : {".key", ".value"}) {
        b_.Output(
            "present." + std::to_string(layer) + what, kFloat,
            {std::string("batch"), cached_heads_, std::string("past + sequence"), s_.columns});
      }
    }
    return b_.Bytes();
  }

  const DecoderSizes s_;
  const DecoderForm form_;
  std::mt19937 random_;
  ModelBuilder b_;
  int64_t cached_heads_ = 0;
  std::string mask_, positions_;
  int count_ = 0;
};

inline std::string Gpt2Model(const DecoderSizes& sizes = {}, const DecoderForm& form = {}) {
  return DecoderBuilder(sizes, form).Gpt2();
}
inline std::string LlamaModel(const DecoderSizes& sizes = {}, const DecoderForm& form = {}) {
  return DecoderBuilder(sizes, form).Llama();
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_GRAPH_DECODERS_DECODER_MODELS_H_
