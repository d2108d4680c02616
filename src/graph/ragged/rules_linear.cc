// Products with weights, and attention.
#include <algorithm>
#include <array>
#include <utility>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

// Weights times tokens, [..., m, k] · [..., k, n], where k is neither batch nor length: angles by
// place are computed so.
Status FixedTimesTokens(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> left, c.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(1));
  const int left_rank = static_cast<int>(left.size());
  if (left_rank < 2 || rank < 2) return Unimplemented("an operand of it has rank 1");
  if (c.in(1).Has(rank - 2)) return MixesTokens();
  for (int axis = 0; axis < rank - 2; ++axis) {
    const int own = left_rank - (rank - axis);
    if (c.in(1).Has(axis) && own >= 0 && !left[static_cast<size_t>(own)].is_one()) {
      return Unimplemented("its left operand has a fixed number of entries along the tokens");
    }
  }
  const int added = std::max(left_rank - rank, 0);
  return c.Copy(c.in(1).Moved([&](int axis) { return axis + added; }));
}

// Tokens times weights: [..., k] · [k, n].
Status MatMul(Context& c) {
  if (c.op() == "MatMul" && c.in(0).fixed() && !c.in(1).sizes()) return FixedTimesTokens(c);
  if (!c.FixedFrom(1)) return Unimplemented("its right operand depends on the tokens");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int right, c.Rank(1));
  if (right > 2 || right < 1) return Unimplemented("its right operand has rank {}", right);
  if (c.in(0).Has(rank - 1)) return MixesTokens();
  for (int i = 2; i < c.num_inputs(); ++i) {  // zero points
    if (!c.has(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int zero, c.Rank(i));
    if (zero != 0 && i != 3) return Unimplemented("its zero point differs along an axis");
  }
  return c.Copy(c.in(0));
}

Status Gemm(Context& c) {
  if (!c.FixedFrom(1)) return Unimplemented("its right operand depends on the tokens");
  if (c.attributes().Int("transA", 0) != 0 || c.in(0).Has(1)) return MixesTokens();
  if (c.has(2)) {  // what is added may not have a row for each token
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(2));
    if (dims.size() > 1 && !dims[0].is_one()) {
      return Unimplemented("its input 2 has a fixed number of entries along the tokens");
    }
  }
  return c.Copy(c.in(0));
}

using Axes = std::array<int, 4>;  // of batch, head, row, column

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
    return Unimplemented("its attribute {} is no permutation", name);
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
  // The batch is 1 there: moving it moves nothing.
  ValueId id = packer.Emit(name, "Squeeze", {c.packed(i), packer.Integers({axes[0]})});
  const auto place = [&](int a) { return int64_t{a} - (a > axes[0] ? 1 : 0); };
  const std::vector<int64_t> perm = {place(axes[2]), place(axes[1]), place(axes[3])};
  if (perm != std::vector<int64_t>{0, 1, 2}) {
    Attributes attributes;
    attributes.Set("perm", perm);
    id = packer.Emit(name, "Transpose", {id}, attributes);
  }
  return id;
}

// What is added to the scores of each key, [T]; kNoValue: nothing.
StatusOr<ValueId> FollowedMask(Context& c) {
  Packer& packer = c.packer();
  const Form& form = c.in(3);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(3));
  const int rank = static_cast<int>(dims.size());
  const int first = 4 - rank;  // the place of its axis 0 in [batch, head, query, key]
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

StatusOr<ValueId> ProbedMask(Context& c) {
  Packer& packer = c.packer();
  CHAIRLIFT_ASSIGN_OR_RETURN(const MaskRule rule, packer.ProbedMask(c.id(3)));
  const std::string why = c.in(3).unknown() ? fmt::format(" ({})", c.in(3).why) : "";
  const std::string cut =
      fmt::format("cannot be followed{}; cut out and tried on examples, they", why);
  if (rule.input < 0) {
    packer.NoteMask(cut + " hide nothing");
    return kNoValue;
  }
  const Graph& graph = packer.original();
  const ValueId source = graph.inputs[static_cast<size_t>(rule.input)];
  packer.NoteMask(fmt::format("{} hide the keys where '{}' is {}", cut,
                              graph.values[static_cast<size_t>(source)].name,
                              rule.counts_if_one ? "not 1" : "0"));
  return packer.KeyMask(rule);
}

}  // namespace

Status PackAttention(Context& c) {
  for (int i = 0; i < 3; ++i) {
    if (c.in(i).unknown()) return Unimplemented("{}", c.in(i).why);
  }
  std::array<Axes, 4> axes;
  const std::array<const char*, 4> names = {"q_axes", "k_axes", "v_axes", "y_axes"};
  for (size_t i = 0; i < 4; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(axes[i], ReadAxes(c, names[i]));
  }
  ValueId mask = kNoValue;
  if (c.has(3)) {
    if (c.in(3).unknown() || c.in(3).sizes() || c.in(3).fixed()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(mask, ProbedMask(c));
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(mask, FollowedMask(c));
      c.packer().NoteMask("followed token by token");
    }
  } else {
    c.packer().NoteMask("there are none");
  }
  Packer& packer = c.packer();
  std::vector<ValueId> inputs;
  for (int i = 0; i < 3; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId operand, Operand(c, i, axes[static_cast<size_t>(i)]));
    inputs.push_back(operand);
  }
  inputs.push_back(packer.offsets());
  if (mask != kNoValue) inputs.push_back(mask);
  Attributes attributes;
  attributes.Set("scale", c.attributes().Float("scale", 1.0f));
  attributes.Set("zeros_for_none", c.attributes().Int("zeros_for_none", 0));
  const std::string& name = c.node().name;
  ValueId y = packer.Emit(name, "RaggedAttention", inputs, attributes, "chairlift");
  // [T, heads, columns] to y's own order, with a batch of 1.
  const Axes& to = axes[3];
  std::vector<int64_t> perm(3);
  const auto place = [&](int a) { return static_cast<size_t>(a - (a > to[0] ? 1 : 0)); };
  perm[place(to[2])] = 0;
  perm[place(to[1])] = 1;
  perm[place(to[3])] = 2;
  if (perm != std::vector<int64_t>{0, 1, 2}) {
    Attributes order;
    order.Set("perm", perm);
    y = packer.Emit(name, "Transpose", {y}, order);
  }
  y = packer.Emit(name, "Unsqueeze", {y, packer.Integers({to[0]})});
  return c.Result(Form::Of(Kind::kTokens, to[0], to[2]), y);
}

void AddLinearRules(RuleTable& rules) {
  rules["Gemm"] = Gemm;
  rules["MatMul"] = MatMul;
  rules["MatMulInteger"] = MatMul;
}

}  // namespace chairlift::ragged
