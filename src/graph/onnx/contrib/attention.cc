// Rules for multi-head attention, written in the form that exporters use.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// The operands of all heads, [batch, heads, tokens, columns], and the value added to their scores.
struct Operands {
  ValueId q = kNoValue, k = kNoValue, v = kNoValue;
  ValueId mask = kNoValue;
  double scale = 1;
};

// [batch, tokens, heads·columns] to [batch, heads, tokens, columns].
ValueId SplitHeads(Maker& make, ValueId id, int64_t heads) {
  return make.Transpose(make.Reshape(id, {0, 0, heads, -1}), {0, 2, 1, 3});
}

int64_t Heads(Maker& make) {
  const int64_t heads = make.attributes().Int("num_heads", 0);
  if (heads < 1) make.Fail(InvalidArgument("its attribute 'num_heads' has to be 1 or more"));
  return std::max<int64_t>(heads, 1);
}

// Columns per head if all heads have `width` columns.
int64_t HeadSize(Maker& make, int64_t width, int64_t heads) {
  if (width % heads == 0) return width / heads;
  make.Fail(InvalidArgument("{} columns are not divisible by {} heads", width, heads));
  return 1;
}

double Scale(const Maker& make, int64_t head_size) {
  const float scale = make.attributes().Float("scale", 0.0f);
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(head_size, 1)));
}

// The size of axis 2 of [batch, heads, n, columns], as a scalar.
ValueId Tokens(Maker& make, ValueId id) {
  return make.Squeeze(make.Make("Shape", {id}, With({{"start", int64_t{2}}, {"end", int64_t{3}}})),
                      {0});
}

ValueId Positions(Maker& make, ValueId count) {
  const ValueId zero = make.ScalarLike(count, 0), one = make.ScalarLike(count, 1);
  return make.Make("Range", {zero, count, one});
}

ValueId Sum(Maker& make, ValueId a, ValueId b) {
  return a == kNoValue ? b : b == kNoValue ? a : make.Make("Add", {a, b});
}

// 0 where `counts` is true, else `hidden`.
ValueId Hiding(Maker& make, ValueId counts, ValueId like, float hidden) {
  return make.Make("Where", {counts, make.ScalarLike(like, 0), make.ScalarLike(like, hidden)});
}

// What the mask input of the file adds to the scores of `o`. The input is [batch, keys] or [batch,
// queries, keys], with 0 for a hidden key, or [batch], the number of valid keys.
ValueId PaddingMask(Maker& make, size_t input, const Operands& o) {
  if (!make.has(input)) return kNoValue;
  const ValueId mask = make.in(input);
  const int rank = make.Rank(mask, "its mask");
  if (!make.ok()) return kNoValue;
  const float hidden = make.attributes().Float("mask_filter_value", -10000.0f);
  if (rank == 2 || rank == 3) {
    const ValueId counts = make.Make("Greater", {mask, make.ScalarLike(mask, 0)});
    const ValueId added = Hiding(make, counts, o.q, hidden);
    return rank == 2 ? make.Unsqueeze(added, {1, 2}) : make.Unsqueeze(added, {1});
  }
  const SymbolicShape shape = make.shape(mask), batch = make.shape(o.q);
  if (rank != 1 || (shape[0].known() && batch[0].known() && !shape[0].Same(batch[0]))) {
    make.Fail(Unimplemented(
        "a mask {} is not supported; [batch], [batch,keys] and [batch,queries,keys] are, and the "
        "batch here is {}",
        shape.ToString(), batch[0].ToString()));
    return kNoValue;
  }
  ValueId lengths = make.CastToInt64(mask);
  if (shape[0].Same(batch[0])) {
    lengths = make.Unsqueeze(lengths, {1});
  } else {  // the form depends on the request: [2·batch] then fails
    const ValueId rows =
        make.Make("Shape", {o.q}, With({{"start", int64_t{0}}, {"end", int64_t{1}}}));
    lengths = make.Make("Reshape", {lengths, make.Make("Concat", {rows, make.Ints({1})},
                                                       With({{"axis", int64_t{0}}}))});
  }
  const ValueId places = Positions(make, Tokens(make, o.k));
  const ValueId added = Hiding(make, make.Make("Less", {places, lengths}), o.q, hidden);
  return make.Unsqueeze(added, {1, 2});
}

// Hides the keys after each query's own position; `past` keys precede the first query's. Without
// them the last query belongs to the last key.
ValueId CausalMask(Maker& make, const Operands& o, ValueId past) {
  if (make.attributes().Int("unidirectional", 0) != 1)
    // With onnxruntime's meaning.
    return kNoValue;
  ValueId queries = Positions(make, Tokens(make, o.q));
  const SymbolicShape q = make.shape(o.q), k = make.shape(o.k);
  const bool same = q.has_rank() && k.has_rank() && q[2].Same(k[2]);
  if (past != kNoValue) {
    queries = make.Make("Add", {queries, Tokens(make, past)});
  } else if (!same) {
    const ValueId before = make.Make("Sub", {Tokens(make, o.k), Tokens(make, o.q)});
    queries = make.Make("Add", {queries, before});
  }
  const ValueId keys = Positions(make, Tokens(make, o.k));
  const ValueId counts = make.Make("LessOrEqual", {keys, make.Unsqueeze(queries, {1})});
  // The lowest number of float16.
  const bool half = make.info(o.q).dtype == DType::kFloat16;
  return Hiding(make, counts, o.q, half ? -65504.0f : std::numeric_limits<float>::lowest());
}

// Replaces the node by the attention of `o`, [batch, queries, heads·columns].
Status BecomeAttention(Maker& make, const Operands& o) {
  const ValueId product = make.Make("MatMul", {o.q, make.Transpose(o.k, {0, 1, 3, 2})});
  ValueId scores =
      make.Make("Mul", {product, make.ScalarLike(product, static_cast<float>(o.scale))});
  scores = Sum(make, scores, o.mask);
  const ValueId weights = make.Make("Softmax", {scores}, With({{"axis", int64_t{-1}}}));
  const ValueId y = make.Transpose(make.Make("MatMul", {weights, o.v}), {0, 2, 1, 3});
  return make.Become("Reshape", {y, make.Ints({0, 0, -1})});
}

// Attention and QAttention have the projections of queries, keys and values in one matrix.
struct Projection {
  int64_t heads = 1;
  std::vector<int64_t> widths;  // of queries, keys, values
};

StatusOr<Projection> ReadProjection(Maker& make) {
  for (const char* name : {"do_rotary", "past_present_share_buffer"}) {
    if (make.attributes().Int(name, 0) != 0) {
      return Unimplemented("its attribute '{}' is only supported as 0", name);
    }
  }
  Projection p{.heads = Heads(make), .widths = make.attributes().Ints("qkv_hidden_sizes")};
  const int64_t width = make.Size(make.in(1), 1, "its weights");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  if (p.widths.empty()) p.widths.assign(3, width / 3);
  if (p.widths.size() != 3 || p.widths[0] != p.widths[1] || p.widths[0] < 1 ||
      p.widths[0] > width / 2 || p.widths[2] < 1 || p.widths[2] != width - 2 * p.widths[0]) {
    return InvalidArgument("weights of {} columns are not those of queries, keys and values",
                           width);
  }
  return p;
}

// The past has keys and values in one tensor, [2, batch, heads, tokens, columns]. Puts them before
// the node's own; joins both again if the file names that output. Returns the past keys.
ValueId JoinPast(Maker& make, size_t input, Operands& o) {
  ValueId past_keys = kNoValue;
  if (make.has(input)) {
    const std::vector<ValueId> past = make.Split(make.in(input), 0, {1, 1});
    past_keys = make.Squeeze(past[0], {0});
    const Attributes axis = With({{"axis", int64_t{2}}});
    o.k = make.Make("Concat", {past_keys, o.k}, axis);
    o.v = make.Make("Concat", {make.Squeeze(past[1], {0}), o.v}, axis);
  }
  if (make.wants(1)) {
    make.MakeOutput(1, "Concat", {make.Unsqueeze(o.k, {0}), make.Unsqueeze(o.v, {0})},
                    With({{"axis", int64_t{0}}}));
  }
  return past_keys;
}

// The remaining steps, given queries, keys and values as [batch, tokens, columns].
Status FinishProjected(Maker& make, const Projection& p, const std::vector<ValueId>& parts,
                       size_t mask, size_t past, size_t bias) {
  Operands o;
  o.q = SplitHeads(make, parts[0], p.heads);
  o.k = SplitHeads(make, parts[1], p.heads);
  o.v = SplitHeads(make, parts[2], p.heads);
  HeadSize(make, p.widths[2], p.heads);
  o.scale = Scale(make, HeadSize(make, p.widths[0], p.heads));
  const ValueId past_keys = JoinPast(make, past, o);
  o.mask = Sum(make, PaddingMask(make, mask, o), CausalMask(make, o, past_keys));
  if (make.has(bias)) o.mask = Sum(make, o.mask, make.in(bias));
  return BecomeAttention(make, o);
}

constexpr size_t kNoInput = ~size_t{0};

struct RotaryInputs {
  ValueId cos, sin, positions;  // [.., rotated / 2], [.., tokens]
};

Attributes RotaryAttributes(int64_t heads, int64_t turned, int64_t interleaved) {
  return With(
      {{"num_heads", heads}, {"rotary_embedding_dim", turned}, {"interleaved", interleaved}});
}

ValueId MakeRotary(Maker& make, ValueId x, const RotaryInputs& tables, int64_t heads,
                   int64_t turned, int64_t interleaved) {
  return make.Make("RotaryEmbedding", {x, tables.cos, tables.sin, tables.positions},
                   RotaryAttributes(heads, turned, interleaved));
}

}  // namespace

// Inputs: x, weights, bias, mask, past, attention_bias, past_sequence_length.
Status Attention(Maker& make) {
  if (make.has(6)) return Unimplemented("its input 'past_sequence_length' is not supported");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Projection p, ReadProjection(make));
  const std::vector<ValueId> weights = make.Split(make.in(1), 1, p.widths);
  std::vector<ValueId> parts;
  for (size_t i = 0; i < 3; ++i) parts.push_back(make.Make("MatMul", {make.in(0), weights[i]}));
  if (make.has(2)) {
    const std::vector<ValueId> bias = make.Split(make.in(2), 0, p.widths);
    for (size_t i = 0; i < 3; ++i) parts[i] = make.Make("Add", {parts[i], bias[i]});
  }
  return FinishProjected(make, p, parts, 3, 4, 5);
}

// Inputs: x, weights, bias, the scales of x and weights, mask, the zero points of x and weights,
// past. Everything after the projection is computed in float.
Status QAttention(Maker& make) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Projection p, ReadProjection(make));
  ValueId y = ScaledProduct(make, {.a = make.in(0),
                                   .b = make.in(1),
                                   .a_scale = make.in(3),
                                   .b_scale = make.in(4),
                                   .a_zero_point = make.in(6),
                                   .b_zero_point = make.in(7)});
  if (make.has(2)) y = make.Make("Add", {y, make.in(2)});
  return FinishProjected(make, p, make.Split(y, -1, p.widths), 5, 8, kNoInput);
}

// Inputs: query, key, value, bias, mask, attention_bias, past_key, past_value,
// past_sequence_length, cache_indirection.
Status MultiHeadAttention(Maker& make) {
  for (const auto& [input, name] :
       {std::pair(8, "past_sequence_length"), {9, "cache_indirection"}}) {
    if (make.has(static_cast<size_t>(input))) {
      return Unimplemented("its input '{}' is not supported", name);
    }
  }
  if (!make.has(1) || !make.has(2)) {
    return Unimplemented("queries, keys and values in one input are not supported; it needs all 3");
  }
  if (make.has(6) != make.has(7)) {
    return InvalidArgument("past_key and past_value must be given together");
  }
  const int64_t heads = Heads(make);
  std::vector<ValueId> parts = {make.in(0), make.in(1), make.in(2)};
  const int query_rank = make.Rank(parts[0], "its query");
  const int key_rank = make.Rank(parts[1], "its key");
  const int value_rank = make.Rank(parts[2], "its value");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  const bool split = key_rank == 4 && value_rank == 4;  // [batch, heads, tokens, columns] already
  if (query_rank != 3 || !(split || (key_rank == 3 && value_rank == 3))) {
    return Unimplemented(
        "query, key and value of {}, {} and {} dimensions are not supported; 3, 3 and 3 or 3, 4 "
        "and 4 are",
        query_rank, key_rank, value_rank);
  }
  const int64_t width = make.Size(parts[0], 2, "its query");
  if (make.has(3)) {
    const int64_t all = make.Size(make.in(3), 0, "its bias");
    CHAIRLIFT_RETURN_IF_ERROR(make.status());
    const int64_t values = all - width - width;  // neither is negative
    if (values < 1) return InvalidArgument("a bias of {} is too short for {}", all, width);
    const std::vector<ValueId> bias = make.Split(make.in(3), 0, {width, width, values});
    // Keys and values in split form already include their bias.
    for (size_t i = 0; i < (split ? 1 : 3); ++i) parts[i] = make.Make("Add", {parts[i], bias[i]});
  }
  Operands o;
  o.q = SplitHeads(make, parts[0], heads);
  o.k = split ? parts[1] : SplitHeads(make, parts[1], heads);
  o.v = split ? parts[2] : SplitHeads(make, parts[2], heads);
  o.scale = Scale(make, HeadSize(make, width, heads));
  const auto joined = [&](size_t past, size_t present, ValueId own) {
    const Attributes axis = With({{"axis", int64_t{2}}});
    if (make.has(past)) return make.MakeOutput(present, "Concat", {make.in(past), own}, axis);
    return make.wants(present) ? make.MakeOutput(present, "Identity", {own}) : own;
  };
  o.k = joined(6, 1, o.k);
  o.v = joined(7, 2, o.v);
  o.mask = Sum(make, PaddingMask(make, 4, o), CausalMask(make, o, make.in(6)));
  if (make.has(5)) o.mask = Sum(make, o.mask, make.in(5));
  return BecomeAttention(make, o);
}

// Inputs: x, position_ids, and tables of cos and sin.
constexpr int64_t kMostHeads = int64_t{1} << 30;  // so that their sums do not overflow

// The number of rotated columns of a head: two for each column of the table.
StatusOr<int64_t> Turned(Maker& make, ValueId table) {
  const int64_t columns = make.Size(table, 1, "its table");
  if (columns > kMostHeads) return InvalidArgument("its table has {} columns", columns);
  return 2 * columns;
}

Status RotaryEmbedding(Maker& make) {
  const Attributes& given = make.attributes();
  if (given.Int("is_packed_batching", 0) != 0 || given.Float("scale", 1.0f) != 1.0f) {
    return Unimplemented(
        "its attributes 'is_packed_batching' and 'scale' are only supported as 0 and 1");
  }
  for (size_t i = 0; i < 4; ++i) {
    if (!make.has(i)) return InvalidArgument("its input {} is absent", i);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t turned, Turned(make, make.in(2)));
  const int64_t columns = given.Int("rotary_embedding_dim", 0);
  if (columns != 0 && columns != turned) {
    return InvalidArgument(
        "its attribute 'rotary_embedding_dim' is {}, but its tables are for {} columns", columns,
        turned);
  }
  const int positions_rank = make.Rank(make.in(1), "its positions");
  const int rank = make.Rank(make.in(0), "its input");
  int64_t heads = given.Int("num_heads", 0);
  if (rank == 3 && heads == 0 && turned > 0) {
    heads = make.Size(make.in(0), 2, "its input") / turned;
  }
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  ValueId positions = make.in(1);
  if (positions_rank != 2) {  // position of the first token, [1]
    const int64_t axis = rank == 4 ? 2 : 1;
    const ValueId count = make.Squeeze(
        make.Make("Shape", {make.in(0)}, With({{"start", axis}, {"end", axis + 1}})), {0});
    positions = make.Unsqueeze(make.Make("Add", {Positions(make, count), positions}), {0});
  }
  return make.Become("RotaryEmbedding", {make.in(0), make.in(2), make.in(3), positions},
                     RotaryAttributes(heads, turned, given.Int("interleaved", 0)));
}

// Inputs: query (combined with key and value if these are absent), key, value, past_key,
// past_value, seqlens_k, total_sequence_length, tables of cos and sin, position_ids,
// attention_bias, head_sink.
Status GroupQueryAttention(Maker& make) {
  if (make.has(11)) return Unimplemented("its input 'head_sink' is not supported");
  for (const char* name : {"smooth_softmax", "qk_output"}) {
    if (make.attributes().Int(name, 0) != 0) {
      return Unimplemented("its attribute '{}' is only supported as 0", name);
    }
  }
  for (const char* name : {"do_rotary", "rotary_interleaved"}) {
    const int64_t value = make.attributes().Int(name, 0);
    if (value != 0 && value != 1) {
      return InvalidArgument("its attribute '{}' is {}, not 0 or 1", name, value);
    }
  }
  for (const size_t i : {0, 3, 4, 5, 6}) {
    if (!make.has(i)) return Unimplemented("it is only supported with its input {}", i);
  }
  if (make.has(1) != make.has(2)) return InvalidArgument("it has only one of key and value");
  const int64_t heads = Heads(make), kv_heads = make.attributes().Int("kv_num_heads", 0);
  if (heads > kMostHeads) return InvalidArgument("its attribute 'num_heads' is {}", heads);
  if (kv_heads < 1 || heads % kv_heads != 0) {
    return InvalidArgument("its attribute 'kv_num_heads', {}, does not divide {} heads", kv_heads,
                           heads);
  }
  const bool packed = !make.has(1);
  const int64_t parts = packed ? heads + 2 * kv_heads : heads;
  const int64_t head_size = HeadSize(make, make.Size(make.in(0), 2, "its query"), parts);
  ValueId q = make.in(0), k = make.in(1), v = make.in(2);
  if (packed) {
    const int64_t narrow = kv_heads * head_size;
    const std::vector<ValueId> all = make.Split(q, 2, {heads * head_size, narrow, narrow});
    q = all[0], k = all[1], v = all[2];
  }
  const int64_t window = make.attributes().Int("local_window_size", -1);
  if (window == 0) {
    return Unimplemented(
        "its attribute 'local_window_size' is 0, so that no query would see a key; without a "
        "window it is -1");
  }
  // Positions in the cache, which the window counts by regardless of the rotation: seqlens_k + 1 −
  // tokens + the index among them.
  const ValueId tokens = make.Squeeze(
      make.Make("Shape", {make.in(0)}, With({{"start", int64_t{1}}, {"end", int64_t{2}}})), {0});
  const ValueId one = make.ScalarLike(tokens, 1);
  const ValueId among = make.Make("Range", {make.Make("Sub", {one, tokens}), one, one});
  const ValueId places =
      make.Make("Add", {make.Reshape(make.CastToInt64(make.in(5)), {-1, 1}), among});
  const ValueId positions = make.has(9) ? make.in(9) : places;
  if (make.attributes().Int("do_rotary", 0) != 0) {
    if (!make.has(7) || !make.has(8)) return InvalidArgument("it has no tables of cos and sin");
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t turned, Turned(make, make.in(7)));
    const int64_t interleaved = make.attributes().Int("rotary_interleaved", 0);
    const RotaryInputs tables = {make.in(7), make.in(8), positions};
    q = MakeRotary(make, q, tables, heads, turned, interleaved);
    k = MakeRotary(make, k, tables, kv_heads, turned, interleaved);
  }
  const auto grown = [&](size_t past, size_t present, ValueId own) {
    return make.MakeOutput(present, "GrowCache",
                           {make.in(past), SplitHeads(make, own, kv_heads), make.in(5), make.in(6)},
                           {}, "chairlift");
  };
  k = grown(3, 1, k);
  v = grown(4, 2, v);
  q = make.Reshape(q, {0, 0, heads, head_size});
  ValueId mask = make.in(10);
  if (window > 0) {
    // The window includes the query's own key.
    const ValueId first =
        make.Make("Sub", {places, make.ScalarLike(places, static_cast<float>(window))});
    const ValueId seen =
        make.Make("Greater", {Positions(make, Tokens(make, k)), make.Unsqueeze(first, {2})});
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    mask = Sum(make, mask, make.Unsqueeze(Hiding(make, seen, q, kNone), {1}));
  }
  const std::vector<int64_t> axes = {0, 2, 1, 3};
  const ValueId y = make.MakeOwn("Attention", {q, k, v, mask},
                                 With({{"scale", static_cast<float>(Scale(make, head_size))},
                                       {"softcap", make.attributes().Float("softcap", 0.0f)},
                                       {"causal", int64_t{2}},
                                       {"grouped", int64_t{1}},
                                       {"q_axes", axes},
                                       {"y_axes", axes}}));
  return make.Become("Reshape", {y, make.Ints({0, 0, heads * head_size})});
}

}  // namespace chairlift::contrib
