// The walk over the graph; form.h defines the terms of the proof.
#include "graph/ragged/ragged.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/batch_axis/propagate.h"
#include "graph/evaluate.h"
#include "graph/infer.h"
#include "graph/passes/keep_checks.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/ragged/bounds.h"
#include "graph/ragged/dynamic_scales.h"
#include "graph/ragged/hidden.h"
#include "graph/ragged/packer.h"
#include "graph/ragged/prepare.h"
#include "graph/ragged/trial.h"

namespace chairlift::ragged {

const RuleTable& PackingRules() {
  static const RuleTable* const kRules = [] {
    auto* rules = new RuleTable;
    AddShapeRules(*rules);
    AddIndexRules(*rules);
    AddReductionRules(*rules);
    return rules;
  }();
  return *kRules;
}

namespace {

using Kind = Form::Kind;

class FormWalk {
 public:
  explicit FormWalk(Packer& packer) : packer_(packer), graph_(packer.original()) {}

  // Sets the forms of the node's outputs, or returns why they are unknown.
  Status Visit(const Node& node) {
    if (!node.def->deterministic) return Unimplemented("it is random");
    if (node.def->runs_bodies || !Subgraphs(node).empty()) {
      return Unimplemented("control flow is not followed");
    }
    Context context(packer_, node);
    if (Is(node, "Attention", "chairlift")) return PackAttention(context);
    if (Is(node, "SourceAttention", "chairlift")) return PackSourceAttention(context);
    if (Is(node, "RaggedQuantize", "chairlift")) return PackDynamicQuantize(context);
    if (Is(node, "DynamicQuantizeLinear") && !context.in(0).fixed()) {
      return Unimplemented("its scale is not only multiplied with a product of its result");
    }
    if (Is(node, "GatherND") && (context.in(0).tokens() || context.in(1).unknown())) {
      return PickTokens(context);
    }
    if (node.def->gives_sizes) return SizesOf(node);
    bool all_fixed = true, rows_only = true;
    for (int i = 0; i < context.num_inputs(); ++i) {
      const Form& form = context.in(i);
      all_fixed &= form.fixed();
      rows_only &= !form.tokens() && !form.positions();
    }
    if (all_fixed) return context.Copy(Form());
    bool computed = true;
    for (int i = 0; i < context.num_inputs(); ++i) {
      computed &= context.in(i).fixed() || context.in(i).sizes();
    }
    if (computed && SizeArithmetic(node)) return absl::OkStatus();
    const bool own = !node.def->domain.empty();
    const auto rule = PackingRules().find(node.def->name);
    if (!own && rule != PackingRules().end()) return rule->second(context);
    if (node.def->axes != nullptr && !computed) return FollowAxes(context);
    if (!own && rows_only && !computed) return RowsAlone(context);
    return computed ? ComputesWithSizes() : Unimplemented("it is not known to keep tokens apart");
  }

 private:
  // Shape and Size of any value with known dimensions.
  Status SizesOf(const Node& node) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, Context(packer_, node).DimsOf(0));
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (!dims[axis].has_others({kBatchSymbol, kLengthSymbol})) continue;
      return Unimplemented("dimension {} of its input, {}, cannot be followed", axis,
                           graph_.values[static_cast<size_t>(node.inputs[0])].shape.ToString());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(Dims sizes, analysis::SizesOf(node, dims));
    packer_.SetSizes(node.outputs[0], batch_axis::State::Of(std::move(sizes)));
    return absl::OkStatus();
  }

  // Whether all of the node's outputs are integers computed from sizes, element by element.
  bool SizeArithmetic(const Node& node) {
    std::vector<batch_axis::State>& states = packer_.states();
    if (!batch_axis::FollowSizes(graph_, node, kBatchSymbol, states).ok()) return false;
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const batch_axis::State& state = states[static_cast<size_t>(id)];
      const Value& value = graph_.values[static_cast<size_t>(id)];
      const bool integer = value.dtype == DType::kInt64 || value.dtype == DType::kInt32;
      if (state.rows() || !state.elements || !value.shape.has_rank() || value.shape.rank() > 1 ||
          (value.shape.rank() == 0 && state.elements->size() != 1)) {
        return false;
      }
      const bool followed =
          std::all_of(state.elements->begin(), state.elements->end(), [](const Line& e) {
            return e.times() && !e.has_others({kBatchSymbol, kLengthSymbol});
          });
      // Comparisons of sizes are useful only if their result is known.
      if (!followed || (!integer && value.dtype != DType::kBool)) return false;
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) packer_.SetSizes(id, states[static_cast<size_t>(id)]);
    }
    return true;
  }

  // For values that depend on whole sequences: the proof that batches are independent also holds
  // for R of them.
  Status RowsAlone(Context& context) {
    bool rows = false, uniform = false;
    for (int i = 0; i < context.num_inputs(); ++i) {
      rows |= context.in(i).rows();
      uniform |= context.in(i).uniform();
      if (const Dims* elements = context.Elements(i);
          context.in(i).sizes() &&
          std::any_of(elements->begin(), elements->end(),
                      [](const Line& e) { return e.has_others({kBatchSymbol}); })) {
        return ComputesWithSizes();
      }
    }
    if (rows && uniform) return Unimplemented("its inputs are not known to keep tokens apart");
    std::vector<batch_axis::State>& states = packer_.states();
    const Node& node = context.node();
    CHAIRLIFT_RETURN_IF_ERROR(
        batch_axis::VisitNode(graph_, node, batch_axis::BatchRules(), kBatchSymbol, states));
    Form form = Form::Of(rows ? Kind::kRows : Kind::kUniform);
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const batch_axis::State& state = states[static_cast<size_t>(id)];
      if (!state.rows() || !state.outer.is_one() || !state.inner.is_one() ||
          (form.batch >= 0 && form.batch != state.axis)) {
        return Unimplemented("its result does not have one entry for each sequence");
      }
      form.batch = state.axis;
    }
    return context.Copy(form);
  }

  Packer& packer_;
  const Graph& graph_;
};

// Checks the nodes that are read only for their sizes, by Shape and Size. They run neither in the
// packed graph nor for a request alone: the sizes are known if such a node can run at all. Returns
// an error if a node's shapes may refuse a request. The shapes of Gather do not. Its indices could,
// but they are read only if it runs.
Status CheckReadForSizes(const Graph& graph) {
  std::vector<bool> read(graph.values.size(), false), measured(graph.values.size(), false);
  for (const ValueId id : graph.outputs) read[static_cast<size_t>(id)] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const auto any = [&](const std::vector<bool>& of) {
      return std::any_of(node.outputs.begin(), node.outputs.end(),
                         [&](ValueId id) { return id != kNoValue && of[static_cast<size_t>(id)]; });
    };
    const bool is_read = any(read);
    if (!is_read && !any(measured)) continue;
    if (!is_read && !Is(node, "Gather") && MayRefuse(graph, node)) {
      return Unimplemented("{}: it may refuse a request, and is read for its sizes alone",
                           node.Describe());
    }
    std::vector<bool>& to = is_read && !node.def->gives_sizes ? read : measured;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) to[static_cast<size_t>(id)] = true;
    }
  }
  return absl::OkStatus();
}

// Sets the packed graph's outputs, with the original's names.
Status GiveOut(Packer& packer) {
  const Graph& original = packer.original();
  Graph& graph = packer.graph();
  RaggedModel& model = packer.model();
  if (original.outputs.empty()) return Unimplemented("the model has no outputs");
  for (const ValueId id : original.outputs) {
    const Value& value = original.values[static_cast<size_t>(id)];
    const Form& form = packer.form(id);
    if (form.unknown()) return Unimplemented("{}", form.why);
    ValueId out = packer.packed(id);
    if (form.leading_tokens()) {
      out = packer.DropBatch(out, value.name);
    } else if (form.rows() && form.batch == 0) {
      out = packer.Emit(value.name, "Identity", {out});
    } else {
      return Unimplemented("output '{}' is neither [batch, length, ...] nor [batch, ...]",
                           value.name);
    }
    graph.values[static_cast<size_t>(out)].name = value.name;
    graph.outputs.push_back(out);
    model.output_is_tokens.push_back(form.tokens());
  }
  return absl::OkStatus();
}

// Why a node similar to attention was not recognised, so that its products mix tokens; or empty.
std::string AttentionLeft(const std::vector<PassReport>& passes) {
  const auto report = std::find_if(passes.begin(), passes.end(), [](const PassReport& r) {
    return r.name == FuseAttention().name;
  });
  if (report == passes.end() || report->notes.empty()) return {};
  const size_t more = report->notes.size() - 1;
  return fmt::format("; not recognised as attention: {}{}", report->notes[0],
                     more == 0 ? "" : fmt::format(" (and {} more)", more));
}

// Removes unused inputs.
void DropInputs(RaggedModel& model) {
  const Links links(model.graph);
  std::vector<ValueId> ids;
  std::vector<RaggedInput> inputs;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const ValueId id = model.graph.inputs[i];
    if (links.Unused(id)) continue;
    ids.push_back(id);
    inputs.push_back(model.inputs[i]);
  }
  model.graph.inputs = std::move(ids);
  model.inputs = std::move(inputs);
}

// "'a', 'b'": the original's inputs with the role `role`.
std::string InputNames(const Graph& original, const RaggedModel& model, RaggedRole role) {
  std::string names;
  for (const RaggedInput& input : model.inputs) {
    if (input.role != role) continue;
    const ValueId id = original.inputs[static_cast<size_t>(input.source)];
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ",
                         original.values[static_cast<size_t>(id)].name);
  }
  return names;
}

// Describes the conversion in words.
void Describe(const Packer& packer, RaggedModel& model) {
  const Graph& original = packer.original();
  std::vector<std::string> notes;
  for (const auto& [role, what] : {std::pair(RaggedRole::kTokens, "packed token by token"),
                                   std::pair(RaggedRole::kRows, "one row a sequence")}) {
    const std::string names = InputNames(original, model, role);
    if (!names.empty()) notes.push_back(fmt::format("{}: {}", what, names));
  }
  std::map<std::string, int> counts;
  for (const Node& node : model.graph.nodes) {
    if (node.def->name.starts_with("Ragged")) ++counts[node.def->name];
  }
  std::string operators;
  for (const auto& [name, count] : counts) {
    operators += fmt::format("{}{} {}", operators.empty() ? "" : ", ", count, name);
  }
  notes.push_back("operators that combine tokens, each within its sequence: " +
                  (operators.empty() ? "nothing" : operators));
  for (const auto& [what, count] : packer.mask_notes()) {
    notes.push_back(fmt::format("masks of {} attention{}: {}", count, count == 1 ? "" : "s", what));
  }
  if (model.min_length > 1) notes.push_back(fmt::format("lengths from {}", model.min_length));
  if (model.max_length > 0) notes.push_back(fmt::format("lengths up to {}", model.max_length));
  for (const int input : model.marks) {
    notes.push_back(fmt::format(
        "a request runs alone, unpacked, if '{}' has values other than 0 and 1",
        original.values[static_cast<size_t>(original.inputs[static_cast<size_t>(input)])].name));
  }
  for (const bool all : {false, true}) {
    for (const int input : all ? model.all_marks : model.first_marks) {
      notes.push_back(fmt::format(
          "a request runs alone, unpacked, if '{}' is 0 for {} of a sequence",
          original.values[static_cast<size_t>(original.inputs[static_cast<size_t>(input)])].name,
          all ? "any token" : "the first token"));
    }
  }
  if (model.mask >= 0) {
    const Value& mask =
        original.values[static_cast<size_t>(original.inputs[static_cast<size_t>(model.mask)])];
    const char* left_out = model.rows_ignore_masked ? "hidden tokens are not computed"
                           : model.rows_ignore_trailing
                               ? "hidden tokens at the end are not computed"
                               : "hidden tokens are computed, because they matter";
    notes.push_back(fmt::format(
        "'{}' hides tokens where it is 0; if only outputs by sequence are asked for, {}", mask.name,
        left_out));
  }
  model.notes.insert(model.notes.begin(), notes.begin(), notes.end());
}

}  // namespace
}  // namespace chairlift::ragged

namespace chairlift {

StatusOr<RaggedModel> MakeRagged(const Graph& graph) {
  using namespace ragged;  // NOLINT(google-build-using-namespace): this file's own module
  std::vector<PassReport> passes;
  CHAIRLIFT_ASSIGN_OR_RETURN(Graph original, Prepare(graph, passes));
  Packer packer(original);
  FormWalk walk(packer);
  InferBudget budget;
  for (Node& node : original.nodes) {
    std::string why;
    // Infers shapes from what is known about the inputs so far.
    Status status = InferNode(original, node, budget);
    for (const ValueId id : node.inputs) {
      // Some nodes accept unknown inputs. Attention and GatherND analyse masks and indices further
      // than other rules do. Shapes may be known even if nothing else is.
      if (id != kNoValue && packer.form(id).unknown() && why.empty() &&
          !Is(node, "Attention", "chairlift") && !Is(node, "GatherND") && !node.def->gives_sizes) {
        why = packer.form(id).why;
      }
    }
    if (why.empty()) {
      if (status.ok()) status = walk.Visit(node);
      if (status.ok()) continue;
      const bool named = Message(status).starts_with("node ");
      why = named ? Message(status) : fmt::format("{}: {}", node.Describe(), Message(status));
    }
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) packer.SetUnknown(id, why);
    }
  }
  if (const Status given = GiveOut(packer); !given.ok()) {
    return Unimplemented("{}{}", Message(given), AttentionLeft(passes));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckReadForSizes(original));
  if (const int64_t longest = LongestForTables(packer); longest > 0) packer.LimitLength(longest);
  RaggedModel model = std::move(packer.model());
  model.graph = std::move(packer.graph());
  SortNodes(model.graph);
  model.passes = std::move(passes);
  std::vector<std::string> left;
  CHAIRLIFT_RETURN_IF_ERROR(RemoveDeadNodes().run(model.graph, left).status());
  DropInputs(model);
  CHAIRLIFT_RETURN_IF_ERROR(Verify(model.graph));
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(model.graph));
  FindHidden(model);
  CHAIRLIFT_RETURN_IF_ERROR(TryPacked(original, model));
  Describe(packer, model);
  return model;
}

}  // namespace chairlift
