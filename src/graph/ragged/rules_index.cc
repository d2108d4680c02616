// Operators that slice, number and select along an axis, by constants or by data.
#include <algorithm>
#include <limits>
#include <utility>

#include "graph/passes/rewrite.h"
#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

bool IsLength(const Line& e) { return e == Line::Of(kLengthSymbol); }

// Token `index` of every sequence of [batch, length, ...], as [batch, ...] or [batch, 1, ...].
Status PickToken(Context& c, int64_t index, bool keep) {
  if (!c.in(0).leading_tokens()) return MixesTokens();
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  ValueId token =
      packer.Emit(name, "RaggedToken", {packer.DropBatch(c.packed(0), name), packer.offsets()},
                  Attribute("index", index), "chairlift");
  if (keep) token = packer.Emit(name, "Unsqueeze", {token, packer.Integers({1})});
  int64_t& shortest = packer.model().min_length;
  shortest = std::max(shortest, index < 0 ? -index : index + 1);
  return c.Result(Form::Of(Kind::kRows, 0), token);
}

// Token index[b] of each sequence b of [batch, length, ...], as [batch, ...]. `index` has one
// integer for each sequence.
StatusOr<ValueId> PickByData(Context& c, ValueId index) {
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  const Form& form = packer.form(index);
  if (!c.in(0).leading_tokens() || !form.rows() || form.batch != 0) return MixesTokens();
  ValueId at = packer.Emit(name, "Reshape", {packer.packed(index), packer.Integers({-1})});
  if (packer.original().values[static_cast<size_t>(index)].dtype != DType::kInt64) {
    at = packer.Emit(name, "Cast", {at}, Attribute("to", int64_t{7}));
  }
  return packer.Emit(name, "RaggedToken",
                     {packer.DropBatch(c.packed(0), name), packer.offsets(), at}, {}, "chairlift");
}

}  // namespace

Status PickTokens(Context& c) {
  if (!c.in(0).unknown() && !c.in(1).unknown()) {
    Status followed = FollowAxes(c);
    if (followed.ok()) return followed;
  }
  for (const int i : {0, 1}) {
    if (c.in(i).unknown() && (i == 0 || c.attributes().Int("batch_dims", 0) != 0)) {
      return Unimplemented("{}", c.in(i).why);
    }
  }
  ValueId index = c.id(1);
  if (c.attributes().Int("batch_dims", 0) == 0) {
    const Node* concat = c.packer().Producer(index);
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(1));
    const int64_t last =
        concat == nullptr || !Is(*concat, "Concat") ? rank : concat->attributes.Int("axis", 0);
    if ((last != -1 && last != rank - 1) || concat->inputs.size() != 2 ||
        !c.packer().NumbersSequences(concat->inputs[0])) {
      return c.in(1).unknown() ? Unimplemented("{}", c.in(1).why) : MixesTokens();
    }
    index = concat->inputs[1];
    if (c.packer().form(index).unknown()) {
      return Unimplemented("{}", c.packer().form(index).why);
    }
  } else if (c.attributes().Int("batch_dims", 0) != 1) {
    return MixesTokens();
  }
  // [batch, 1].
  const SymbolicShape& shape = c.packer().original().values[static_cast<size_t>(index)].shape;
  if (!shape.has_rank() || shape.rank() != 2 || !shape[1].Same(Dim(1))) return MixesTokens();
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId token, PickByData(c, index));
  return c.Result(Form::Of(Kind::kRows, 0), token);
}

namespace {

// The first, or last, token of each sequence with the largest number. NaN is not followed.
Status ArgMax(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  if (axis != c.in(0).length || c.in(0).merged()) return FollowAxes(c);
  const DType dtype = c.packer().original().values[static_cast<size_t>(c.id(0))].dtype;
  if (!c.in(0).leading_tokens() || (dtype != DType::kInt32 && dtype != DType::kInt64)) {
    return MixesTokens();
  }
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  const auto reduced = [&](ValueId of, const char* op) {
    return packer.Emit(name, "RaggedReduce", {of, packer.offsets()},
                       Attribute("op", std::string(op)), "chairlift");
  };
  const ValueId tokens = packer.DropBatch(c.packed(0), name);
  const ValueId most =
      packer.Emit(name, "RaggedSpread",
                  {reduced(tokens, "max"), packer.offsets(), packer.positions()}, {}, "chairlift");
  std::vector<int64_t> others;
  for (int i = 1; i + 1 < rank; ++i) others.push_back(i);
  ValueId places = packer.positions();
  if (!others.empty()) places = packer.Emit(name, "Unsqueeze", {places, packer.Integers(others)});
  const bool last = c.attributes().Int("select_last_index", 0) != 0;
  const ValueId beyond = packer.Integers({last ? -1 : std::numeric_limits<int64_t>::max()});
  const ValueId at =
      packer.Emit(name, "Where", {packer.Emit(name, "Equal", {tokens, most}), places, beyond});
  ValueId rows = reduced(at, last ? "max" : "min");
  if (c.attributes().Int("keepdims", 1) != 0) {
    rows = packer.Emit(name, "Unsqueeze", {rows, packer.Integers({1})});
  }
  return c.Result(Form::Of(Kind::kRows, 0), rows);
}

// More tokens than any sequence has.
constexpr int64_t kBeyond = int64_t{1} << 30;

using Cut = analysis::NodeReader::Cut;

// table[..., 0:length, ...]: the entries of each token's position.
Status SlicePlaces(Context& c, const Cut& cut) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(0));
  const Line& size = dims[static_cast<size_t>(cut.axis)];
  if (!c.in(0).fixed() || !IsLength(*cut.end) || cut.start != Line() || cut.step != 1 ||
      !size.is_number()) {
    return ComputesWithSizes();
  }
  Packer& packer = c.packer();
  packer.LimitLength(size.number);
  const ValueId places = packer.Emit(c.node().name, "Gather", {c.packed(0), packer.positions()},
                                     Attribute("axis", int64_t{cut.axis}));
  return c.Result(Form::Of(Kind::kPositions, -1, cut.axis), places);
}

Status Slice(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Cut> cuts, c.Cuts());
  std::vector<Cut> own;  // along the batch or the length, without those that keep everything
  for (const Cut& cut : cuts) {
    if (!cut.start || !cut.start->is_number() || !cut.end || !cut.step) {
      return Unimplemented("where it cuts cannot be followed");
    }
    const bool numbers = cut.end->is_number();
    const bool along = c.in(0).Has(cut.axis);
    if (!along && numbers) continue;
    const bool length = cut.axis == c.in(0).length && !c.in(0).merged();
    const bool all =
        along && cut.start == Line() && cut.step == 1 &&
        ((numbers && cut.end->number >= kBeyond) || (length && IsLength(*cut.end)) ||
         (cut.axis == c.in(0).batch && !length && cut.end == Line::Batch() && !c.in(0).merged()));
    if (!all) own.push_back(cut);
  }
  if (own.empty()) {
    if (c.FixedFrom(1)) return c.Copy(c.in(0));
    // Ends computed from sizes keep everything.
    std::vector<int64_t> ends;
    ends.reserve(cuts.size());
    for (const Cut& cut : cuts) {
      ends.push_back(cut.end->is_number() ? cut.end->number : std::numeric_limits<int64_t>::max());
    }
    return c.Copy(c.in(0), {{2, c.packer().Integers(ends)}});
  }
  if (cuts.size() > 1) return Unimplemented("it cuts along several axes at once");
  const Cut& cut = own[0];
  if (!c.in(0).Has(cut.axis)) return SlicePlaces(c, cut);
  if (cut.axis == c.in(0).batch) return MixesSequences();
  // One token: [i:i+1].
  if (cut.step != 1 || !cut.end->is_number()) return MixesTokens();
  const int64_t start = cut.start->number, end = cut.end->number;
  const bool last = start == -1 && end >= kBeyond;
  const bool one = end == start + 1 && end != 0;
  if (!one && !last) return MixesTokens();
  return PickToken(c, start, true);
}

// One token of each sequence. Selections along other axes, and rows of a table, are as the operator
// defines.
Status Gather(Context& c) {
  const Form& data = c.in(0);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int index_rank, c.Rank(1));
  if (axis != data.length || data.merged() || !c.in(1).fixed()) return FollowAxes(c);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, c.Numbers(1));
  if (numbers.size() != 1 || index_rank > 1) return MixesTokens();
  return PickToken(c, numbers[0], index_rank == 1);
}

// From a table that is the same for every sequence, [batch, n] by [batch, length], or [1, n] by [1,
// length].
Status GatherElements(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, c.OwnAxis(0));
  const Form& data = c.in(0);
  const Form& index = c.in(1);
  if (data.uniform() && index.tokens() && !index.merged() && index.length == axis &&
      index.batch == data.batch && rank == 2) {
    return c.Copy(index);
  }
  if (data.fixed() && index.positions() && index.length == axis) return c.Copy(index);
  if (data.leading_tokens() && axis == 1 && index.rows()) {
    // One token for each sequence: [batch, 1, 1, ...], or that spread over [batch, 1, ...].
    const Node* expand = c.packer().Producer(c.id(1));
    const bool spread = expand != nullptr && Is(*expand, "Expand");
    const ValueId one = spread ? expand->inputs[0] : c.id(1);
    CHAIRLIFT_ASSIGN_OR_RETURN(const Dims from, c.DimsOf(0));
    CHAIRLIFT_ASSIGN_OR_RETURN(const Dims to, c.DimsOf(1));
    const SymbolicShape& shape = c.packer().original().values[static_cast<size_t>(one)].shape;
    bool single = shape.has_rank() && shape.rank() == rank && to[1].is_one();
    for (int i = 1; single && i < rank; ++i) single = shape[i].Same(Dim(1));
    for (size_t i = 2; single && i < to.size(); ++i) single = from[i] == to[i];
    if (single) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId token, PickByData(c, one));
      return c.Result(Form::Of(Kind::kRows, 0), c.packer().Emit(c.node().name, "Unsqueeze",
                                                                {token, c.packer().Integers({1})}));
    }
  }
  return FollowAxes(c);
}

// 0, 1, ... length − 1.
Status Range(Context& c) {
  const Dims* start = c.Elements(0);
  const Dims* limit = c.Elements(1);
  const Dims* step = c.Elements(2);
  const auto is = [](const Dims* e, int64_t n) {
    return e != nullptr && e->size() == 1 && (*e)[0] == Line::Number(n);
  };
  if (!is(start, 0) || !is(step, 1) || limit == nullptr || limit->size() != 1 ||
      !IsLength((*limit)[0])) {
    return ComputesWithSizes();
  }
  Packer& packer = c.packer();
  ValueId places = packer.positions();
  const DType dtype = packer.original().values[static_cast<size_t>(c.node().outputs[0])].dtype;
  if (dtype == DType::kInt32) {
    places = packer.Emit(c.node().name, "Cast", {places}, Attribute("to", int64_t{6}));
  } else if (dtype != DType::kInt64) {
    return ComputesWithSizes();
  }
  return c.Result(Form::Of(Kind::kPositions, -1, 0), places);
}

}  // namespace

void AddIndexRules(RuleTable& rules) {
  rules["ArgMax"] = ArgMax;
  rules["Gather"] = Gather;
  rules["GatherElements"] = GatherElements;
  rules["Range"] = Range;
  rules["Slice"] = Slice;
}

}  // namespace chairlift::ragged
