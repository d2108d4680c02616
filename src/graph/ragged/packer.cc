#include "graph/ragged/packer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "graph/batch_axis/propagate.h"
#include "graph/passes/rewrite.h"

namespace chairlift::ragged {

Packer::Packer(Graph& original)
    : original_(original),
      forms_(original.values.size(), Form::Unknown("it is not computed")),
      packed_(original.values.size(), kNoValue),
      patterns_(original, states_) {
  graph_.name = original.name;
  states_.reserve(original.values.size());
  for (size_t i = 0; i < original.values.size(); ++i) {
    states_.push_back(batch_axis::Known(original.values[i], kBatchSymbol));
    if (original.values[i].is_constant()) forms_[i] = Form();
  }
  offsets_ = AddInput("offsets", DType::kInt64, SymbolicShape({Dim::Symbol("sequences+1")}),
                      {.role = RaggedRole::kOffsets});
  positions_ = AddInput("positions", DType::kInt64, SymbolicShape({Dim::Symbol(kTokensSymbol)}),
                        {.role = RaggedRole::kPositions});
  requests_ = AddInput("requests", DType::kInt64, SymbolicShape({Dim::Symbol("sequences+1")}),
                       {.role = RaggedRole::kRequests});
  for (size_t i = 0; i < original.inputs.size(); ++i) {
    const ValueId id = original.inputs[i];
    const Value& value = original.values[static_cast<size_t>(id)];
    const bool tokens = value.shape.rank() > 1 && value.shape[1].Same(Dim::Symbol(kLengthSymbol));
    std::vector<Dim> dims = value.shape.dims();
    if (tokens) dims.erase(dims.begin());
    dims[0] = Dim::Symbol(tokens ? kTokensSymbol : kSequencesSymbol);
    const ValueId input = AddInput(
        value.name, value.dtype, SymbolicShape(std::move(dims)),
        {.role = tokens ? RaggedRole::kTokens : RaggedRole::kRows, .source = static_cast<int>(i)});
    if (tokens) {
      Set(id, Form::Of(Form::Kind::kTokens, 0, 1), AddBatch(input, value.name));
    } else {
      Set(id, Form::Of(Form::Kind::kRows, 0), input);
    }
  }
}

ValueId Packer::AddInput(const std::string& name, DType dtype, SymbolicShape shape,
                         RaggedInput role) {
  const ValueId id = graph_.AddValue({.name = name, .dtype = dtype, .shape = std::move(shape)});
  graph_.inputs.push_back(id);
  model_.inputs.push_back(role);
  return id;
}

ValueId Packer::packed(ValueId id) {
  ValueId& packed = packed_[static_cast<size_t>(id)];
  const Value& value = original_.values[static_cast<size_t>(id)];
  if (packed == kNoValue && value.is_constant()) {
    packed = AddConstant(graph_, value.name, value.constant);
  }
  return packed;
}

void Packer::Set(ValueId id, Form form, ValueId packed) {
  if (form.rows() || form.uniform()) {
    states_[static_cast<size_t>(id)] = batch_axis::State::Rows(form.batch);
  } else if (form.fixed()) {
    states_[static_cast<size_t>(id)] =
        batch_axis::Known(original_.values[static_cast<size_t>(id)], kBatchSymbol);
  }
  SymbolicShape& shape = original_.values[static_cast<size_t>(id)].shape;
  if (shape.has_rank() && !form.merged()) {
    if (form.batch >= 0) shape[form.batch] = Dim::Symbol(kBatchSymbol);
    if (form.length >= 0) shape[form.length] = Dim::Symbol(kLengthSymbol);
  }
  forms_[static_cast<size_t>(id)] = std::move(form);
  packed_[static_cast<size_t>(id)] = packed;
}

void Packer::SetSizes(ValueId id, batch_axis::State state) {
  const bool numbers = std::all_of(state.elements->begin(), state.elements->end(),
                                   [](const Line& e) { return e.is_number(); });
  if (numbers) {
    const Value& value = original_.values[static_cast<size_t>(id)];
    Set(id, Form(), Sizes(*state.elements, value.shape.rank(), value.dtype, false));
  } else {
    forms_[static_cast<size_t>(id)] = Form::Of(Form::Kind::kSizes);
    // The length varies as the batch does.
    state.kind = batch_axis::State::Kind::kSizes;
  }
  states_[static_cast<size_t>(id)] = std::move(state);
}

ValueId Packer::Emit(const std::string& name, std::string_view op, std::vector<ValueId> inputs,
                     Attributes attributes, std::string_view domain) {
  const ValueId output =
      AddNode(graph_, name, op, std::move(inputs), std::move(attributes), domain);
  graph_.values.back().name += "/" + std::to_string(output);
  return output;
}

ValueId Packer::Constant(Tensor t) {
  return AddConstant(graph_, "constant/" + std::to_string(graph_.values.size()), std::move(t));
}

ValueId Packer::Integers(const std::vector<int64_t>& values) {
  const auto [found, fresh] = integers_.emplace(values, kNoValue);
  if (fresh) {
    found->second = AddIntegers(graph_, "constant/" + std::to_string(graph_.values.size()), values);
  }
  return found->second;
}

ValueId Packer::offsets() { return offsets_; }
ValueId Packer::positions() { return positions_; }
ValueId Packer::requests() { return requests_; }

// The size T^p · R^q · number as a tensor [1].
ValueId Packer::One(const Line& extent, bool rows) {
  ValueId product = Integers({*extent.times()});
  const auto multiply = [&](ValueId by) { product = Emit("size", "Mul", {product, by}); };
  for (int i = 0; i < extent.power(kLengthSymbol); ++i) {
    if (tokens_size_ == kNoValue) tokens_size_ = Emit("tokens", "Shape", {positions_});
    multiply(tokens_size_);
  }
  for (int i = 0; rows && i < extent.batch(); ++i) {
    if (rows_size_ == kNoValue) {
      rows_size_ =
          Emit("sequences", "Sub", {Emit("sequences", "Shape", {offsets_}), Integers({1})});
    }
    multiply(rows_size_);
  }
  return product;
}

ValueId Packer::Sizes(const Dims& elements, int rank, DType dtype, bool rows) {
  const bool numbers = std::all_of(elements.begin(), elements.end(), [&](const Line& e) {
    return e.is_number() || (!rows && !e.has_others({kBatchSymbol}));
  });
  ValueId sizes = kNoValue;
  if (numbers) {
    std::vector<int64_t> values;
    values.reserve(elements.size());
    for (const Line& e : elements) values.push_back(*e.times());
    sizes = Integers(values);
  } else {
    std::vector<ValueId> parts;
    parts.reserve(elements.size());
    for (const Line& e : elements) parts.push_back(One(e, rows));
    sizes = parts.size() == 1 ? parts[0]
                              : Emit("sizes", "Concat", parts, Attribute("axis", int64_t{0}));
  }
  if (rank == 0) sizes = Emit("size", "Squeeze", {sizes, Integers({0})});
  if (dtype == DType::kInt64) return sizes;
  Attributes to;
  to.Set("to", int64_t{dtype == DType::kBool ? 9 : 6});  // int64 or bool above; else int32
  return Emit("sizes", "Cast", {sizes}, to);
}

ValueId Packer::DropBatch(ValueId id, const std::string& name) {
  return Emit(name, "Squeeze", {id, Integers({0})});
}
ValueId Packer::AddBatch(ValueId id, const std::string& name) {
  return Emit(name, "Unsqueeze", {id, Integers({0})});
}

StatusOr<MaskRule> Packer::ProvedMask(ValueId mask) {
  auto found = mask_rules_.find(mask);
  if (found == mask_rules_.end()) {
    const ValueId twin = Twin(mask);
    StatusOr<MaskRule> rule = twin != kNoValue ? mask_rules_.at(twin) : patterns_.RuleOf(mask);
    if (patterns_.limit() > 0) LimitLength(patterns_.limit());
    found = mask_rules_.emplace(mask, std::move(rule)).first;
  }
  if (found->second.ok()) return found->second;
  return Unimplemented("its mask {}", Message(found->second.status()));
}

// A mask already followed that is computed identically: exporters write one per layer.
ValueId Packer::Twin(ValueId mask) const {
  const auto same = [&](ValueId a, ValueId b) {
    if (a == b) return true;
    if (a == kNoValue || b == kNoValue) return false;
    const Tensor& x = original_.values[static_cast<size_t>(a)].constant;
    const Tensor& y = original_.values[static_cast<size_t>(b)].constant;
    return x.present() && x.dtype() == y.dtype() && x.shape() == y.shape() &&
           std::memcmp(x.raw(), y.raw(), x.byte_size()) == 0;
  };
  const Node* node = Producer(mask);
  for (const auto& [other, rule] : mask_rules_) {
    const Node* twin = node == nullptr ? nullptr : Producer(other);
    if (twin != nullptr && twin->def == node->def && node->attributes.values().empty() &&
        twin->attributes.values().empty() &&
        std::equal(node->inputs.begin(), node->inputs.end(), twin->inputs.begin(),
                   twin->inputs.end(), same)) {
      return other;
    }
  }
  return kNoValue;
}

ValueId Packer::KeyMask(const MaskRule& rule) {
  const auto [found, fresh] = key_masks_.emplace(std::pair(rule.input, rule.hidden), kNoValue);
  if (!fresh) return found->second;
  const ValueId source = original_.inputs[static_cast<size_t>(rule.input)];
  ValueId counts = packed(source);
  if (original_.values[static_cast<size_t>(source)].dtype != DType::kBool) {
    Attributes to;
    to.Set("to", int64_t{9});  // bool
    counts = Emit("mask", "Cast", {counts}, to);
  }
  const ValueId added =
      Emit("mask", "Where",
           {counts, Constant(Tensor::Scalar(0.0f)), Constant(Tensor::Scalar(rule.hidden))});
  found->second = Emit("mask", "Reshape", {added, Integers({-1})});
  return found->second;
}

StatusOr<ValueId> Packer::ByDistance(const MaskRule& rule, const Dim& heads) {
  constexpr int64_t kPoints = 2 * analysis::kReach + 1;
  const auto own = static_cast<int64_t>(rule.by_distance.size()) / kPoints;
  if (!heads.known() || (own != 1 && own != heads.value())) {
    return Unimplemented("its mask is for {} heads, its queries have {}", own, heads.ToString());
  }
  const auto [found, fresh] =
      by_distance_.emplace(std::pair(rule.by_distance, heads.value()), kNoValue);
  if (!fresh) return found->second;
  Tensor all = Tensor::Allocate(DType::kFloat, {heads.value(), kPoints});
  for (int64_t h = 0; h < heads.value(); ++h) {
    std::copy_n(rule.by_distance.begin() + (own == 1 ? 0 : h * kPoints), kPoints,
                all.data<float>() + h * kPoints);
  }
  return found->second = Constant(std::move(all));
}

bool Context::FixedFrom(int first) const {
  for (int i = first; i < num_inputs(); ++i) {
    if (!in(i).fixed()) return false;
  }
  return true;
}

StatusOr<Dims> Context::DimsOf(int i) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, Rank(i));
  const SymbolicShape& shape = graph().values[static_cast<size_t>(id(i))].shape;
  const Form& form = in(i);
  Dims dims;
  for (int axis = 0; axis < rank; ++axis) {
    if (axis == form.batch && axis == form.length) {
      dims.push_back(*Line::Product(Line::Batch(), Line::Of(kLengthSymbol)));
    } else if (axis == form.batch) {
      dims.push_back(Line::Batch());
    } else if (axis == form.length) {
      dims.push_back(Line::Of(kLengthSymbol));
    } else if (shape[axis].known()) {
      dims.push_back(Line::Number(shape[axis].value()));
    } else if (shape[axis].is_symbol() &&
               (shape[axis].symbol() == kBatchSymbol || shape[axis].symbol() == kLengthSymbol)) {
      dims.push_back(Line::Of(shape[axis].symbol()));  // of a value that is not followed
    } else {
      dims.push_back(Line::Of(fmt::format("?{}.{}", id(i), axis)));
    }
  }
  return dims;
}

const Dims* Context::Elements(int i) const {
  if (!has(i) || !(in(i).fixed() || in(i).sizes())) return nullptr;
  const batch_axis::State& state = packer_.states()[static_cast<size_t>(id(i))];
  return state.elements ? &*state.elements : nullptr;
}

Status Context::Copy(const Form& form, const std::map<int, ValueId>& inputs) {
  // The packed graph has T in place of lengths, so sizes are computed by their own arithmetic only.
  if (form.sizes()) return ComputesWithSizes();
  Node copy = node();
  for (int i = 0; i < num_inputs(); ++i) {
    if (!has(i)) continue;
    ValueId& input = copy.inputs[static_cast<size_t>(i)];
    if (const auto given = inputs.find(i); given != inputs.end()) {
      input = given->second;
    } else if (in(i).sizes()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, Rank(i));
      if (Elements(i) == nullptr) return ComputesWithSizes();
      input =
          packer_.Sizes(*Elements(i), rank,
                        packer_.original().values[static_cast<size_t>(id(i))].dtype, form.rows());
    } else {
      input = packed(i);
    }
    if (input == kNoValue) return Internal("its input {} has no packed form", i);
  }
  for (ValueId& output : copy.outputs) {
    if (output == kNoValue) continue;
    const Value& value = packer_.original().values[static_cast<size_t>(output)];
    const ValueId packed = packer_.graph().AddValue({.name = value.name, .dtype = value.dtype});
    packer_.Set(output, form, packed);
    output = packed;
  }
  packer_.graph().nodes.push_back(std::move(copy));
  return absl::OkStatus();
}

Status MixesTokens() { return Unimplemented("it works along the length, over several tokens"); }
Status MixesSequences() {
  return Unimplemented("it works along the batch, over several sequences");
}
Status ComputesWithSizes() {
  return Unimplemented("it computes with the batch size or the length");
}

}  // namespace chairlift::ragged
