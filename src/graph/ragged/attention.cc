// Attention: each query attends to the keys of its own sequence.
#include <algorithm>
#include <array>
#include <utility>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

using Axes = std::array<int, 4>;  // for batch, head, row, column

StatusOr<Axes> ReadAxes(Context& c, const char* name) {
  const std::vector<int64_t> given = c.attributes().Ints(name, {0, 1, 2, 3});
  std::array<bool, 4> seen{};
  Axes axes{};
  for (size_t i = 0; i < given.size() && i < 4; ++i) {
    if (given[i] < 0 || given[i] > 3) break;
    axes[i] = static_cast<int>(given[i]);
    seen[static_cast<size_t>(given[i])] = true;
  }
  if (given.size() != 4 || std::find(seen.begin(), seen.end(), false) != seen.end()) {
    return Unimplemented("its attribute {} is not a permutation", name);
  }
  return axes;
}

// Operand i as [T, heads, columns].
StatusOr<ValueId> Operand(Context& c, int i, const Axes& axes) {
  const Form& form = c.in(i);
  if (!form.tokens() || form.batch != axes[0] || form.length != axes[2]) {
    return Unimplemented("its input {} is not [batch, length] tokens", i);
  }
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  Attributes axis;
  // The batch is 1 there, so moving it is free.
  ValueId id = packer.Emit(name, "Squeeze", {c.packed(i), packer.Integers({axes[0]})});
  const auto place = [&](int a) { return int64_t{a} - (a > axes[0] ? 1 : 0); };
  const std::vector<int64_t> perm = {place(axes[2]), place(axes[1]), place(axes[3])};
  if (perm != std::vector<int64_t>{0, 1, 2}) {
    id = packer.Emit(name, "Transpose", {id}, Attribute("perm", perm));
  }
  return id;
}

// In the packed operator, several query heads may share one head of keys and values. It returns one
// head per query head. The original operator does so only if it is `grouped`. Otherwise heads
// broadcast: keys and values must have as many heads as queries, or one.
Status CheckHeads(Context& c, const std::array<Axes, 4>& axes) {
  const auto heads = [&](int i) {
    const SymbolicShape& shape = c.graph().values[static_cast<size_t>(c.id(i))].shape;
    if (i < 3) return shape.has_rank() ? shape[axes[static_cast<size_t>(i)][1]] : Dim::Unknown();
    if (!shape.has_rank()) return Dim::Unknown();
    return shape.rank() < 3 ? Dim(1) : shape[shape.rank() - 3];
  };
  const auto is_one = [](const Dim& dim) { return dim.known() && dim.value() == 1; };
  const Dim q = heads(0), k = heads(1), v = heads(2);
  const bool grouped = c.attributes().Int("grouped", 0) != 0;
  const bool several = q.known() && q.value() > 1;
  if (!grouped && !(k.Same(v) && (k.Same(q) || is_one(k)))) {
    return Unimplemented("its heads are not proved equal: {} of queries, {} of keys, {} of values",
                         q.ToString(), k.ToString(), v.ToString());
  }
  if (!c.has(3) || c.attributes().Int("distances", 0) != 0) return absl::OkStatus();
  const Dim mask = heads(3);
  const bool fits = is_one(mask) || mask.Same(q) || (several && !mask.known());
  if (fits) return absl::OkStatus();
  return Unimplemented("its mask has {} heads, its queries {}", mask.ToString(), q.ToString());
}

// The value to add to the scores of each key, [T]; kNoValue: nothing.
StatusOr<ValueId> FollowedMask(Context& c) {
  Packer& packer = c.packer();
  const Form& form = c.in(3);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(3));
  const int rank = static_cast<int>(dims.size());
  const int first = 4 - rank;  // the position of its axis 0 in [batch, head, query, key]
  if (form.length + first != 3 || (form.tokens() && form.batch + first != 0) ||
      !(form.tokens() || form.positions())) {
    return Unimplemented("its mask is not one for each key");
  }
  for (int axis = 0; axis < rank; ++axis) {
    if (!form.Has(axis) && !dims[static_cast<size_t>(axis)].is_one()) {
      return Unimplemented("its mask differs between {}", axis + first == 1 ? "heads" : "queries");
    }
  }
  return packer.Emit(c.node().name, "Reshape", {c.packed(3), packer.Integers({-1})});
}

// The biases of an attention, as RaggedAttention takes them.
struct Biases {
  ValueId by_key = kNoValue, by_distance = kNoValue;
  bool causal = false;
};

StatusOr<Biases> ProvedMask(Context& c, int head_axis) {
  Packer& packer = c.packer();
  CHAIRLIFT_ASSIGN_OR_RETURN(const MaskRule rule, packer.ProvedMask(c.id(3)));
  for (const int input : rule.marks) Packer::Require(packer.model().marks, input);
  const Graph& graph = packer.original();
  Biases biases{.causal = rule.causal};
  std::vector<std::string> what;
  if (!rule.by_distance.empty()) {
    const SymbolicShape& q = graph.values[static_cast<size_t>(c.id(0))].shape;
    CHAIRLIFT_ASSIGN_OR_RETURN(biases.by_distance, packer.ByDistance(rule, q[head_axis]));
    what.emplace_back(rule.is_window ? "hide the keys outside of a window"
                                     : "add a bias by distance");
  }
  if (rule.causal) what.emplace_back("hide the keys behind the query");
  if (rule.input >= 0) {
    if (rule.is_window) {
      // If all tokens count, no other key must be hidden.
      Packer::Require(packer.model().all_marks, rule.input);
    } else {
      // The first key is seen by all queries.
      if (rule.causal) Packer::Require(packer.model().first_marks, rule.input);
      biases.by_key = packer.KeyMask(rule);
    }
    what.push_back(fmt::format(
        "hide the keys where '{}' is 0",
        graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(rule.input)])].name));
  }
  packer.NoteMask(what.empty() ? "proved to hide nothing"
                               : fmt::format("{}proved to {}",
                                             rule.input < 0 ? "" : "spread over queries and keys, ",
                                             fmt::join(what, ", and to ")));
  return biases;
}

// [T, heads, columns] in y's own order, with a batch of 1.
Status GiveTokens(Context& c, ValueId y, const Axes& to) {
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  std::vector<int64_t> perm(3);
  const auto place = [&](int a) { return static_cast<size_t>(a - (a > to[0] ? 1 : 0)); };
  perm[place(to[2])] = 0;
  perm[place(to[1])] = 1;
  perm[place(to[3])] = 2;
  if (perm != std::vector<int64_t>{0, 1, 2}) {
    y = packer.Emit(name, "Transpose", {y}, Attribute("perm", perm));
  }
  y = packer.Emit(name, "Unsqueeze", {y, packer.Integers({to[0]})});
  return c.Result(Form::Of(Kind::kTokens, to[0], to[2]), y);
}

}  // namespace

Status PackSourceAttention(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Axes from, ReadAxes(c, "q_axes"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Axes to, ReadAxes(c, "y_axes"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId q, Operand(c, 0, from));
  Attributes attributes;
  attributes.Set("scale", c.attributes().Float("scale", 1.0f));
  for (const char* size : {"kv_heads", "key_size", "value_size"}) {
    attributes.Set(size, c.attributes().Int(size, 0));
  }
  return GiveTokens(
      c, c.packer().Emit(c.node().name, "SourceAttention", {q}, attributes, "chairlift"), to);
}

Status PackAttention(Context& c) {
  for (int i = 0; i < 3; ++i) {
    if (c.in(i).unknown()) return Unimplemented("{}", c.in(i).why);
  }
  std::array<Axes, 4> axes;
  const std::array<const char*, 4> names = {"q_axes", "k_axes", "v_axes", "y_axes"};
  for (size_t i = 0; i < 4; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes[i], ReadAxes(c, names[i]));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckHeads(c, axes));
  Packer& packer = c.packer();
  Biases biases;
  if (!c.has(3)) {
    packer.NoteMask("there are none");
  } else if (c.attributes().Int("distances", 0) != 0) {
    if (!c.in(3).fixed()) return Unimplemented("its bias by distance is not constant");
    biases.by_distance = c.packed(3);
    packer.NoteMask("by distance");
  } else if (c.in(3).unknown() || c.in(3).sizes() || c.in(3).fixed()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(biases, ProvedMask(c, axes[0][1]));
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(biases.by_key, FollowedMask(c));
    packer.NoteMask("followed token by token");
  }
  std::vector<ValueId> inputs;
  for (int i = 0; i < 3; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId operand, Operand(c, i, axes[static_cast<size_t>(i)]));
    inputs.push_back(operand);
  }
  inputs.push_back(packer.offsets());
  if (biases.by_key != kNoValue || biases.by_distance != kNoValue) inputs.push_back(biases.by_key);
  if (biases.by_distance != kNoValue) inputs.push_back(biases.by_distance);
  const bool causal = biases.causal || c.attributes().Int("causal", 0) != 0;
  Attributes attributes;
  attributes.Set("scale", c.attributes().Float("scale", 1.0f));
  attributes.Set("softcap", c.attributes().Float("softcap", 0.0f));
  attributes.Set("causal", int64_t{causal});
  attributes.Set("zeros_for_none", c.attributes().Int("zeros_for_none", 0));
  if (c.attributes().Has("steps")) attributes.Set("steps", c.attributes().Floats("steps"));
  return GiveTokens(
      c, packer.Emit(c.node().name, "RaggedAttention", inputs, attributes, "chairlift"), axes[3]);
}

}  // namespace chairlift::ragged
