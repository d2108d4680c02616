// Builds plans: the order of nodes, the values known without running, and the place of everything.
#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>

#include "absl/cleanup/cleanup.h"
#include "device/device.h"
#include "graph/evaluate.h"
#include "ops/kernel_memory.h"
#include "runtime/plan.h"

namespace chairlift {
namespace {

// Values up to this size that depend only on shapes are computed once per shape class.
constexpr int64_t kMaxFoldedBytes = 64 << 10;
// A bound for every plan, because shapes come from requests.
constexpr size_t kMaxArenaBytes = size_t{32} << 30;
// The memory of a stored step: its operands and the common part of kernels, measured over whole
// models. Kernels that hold more report it (ops/kernel_memory.h).
constexpr int64_t kStepBytes = 1 << 10;
constexpr int kForever = std::numeric_limits<int>::max();

// The tensor with these elements if all of them are numbers; otherwise an absent one.
Tensor FromElements(const TensorDesc& desc, const std::vector<Dim>& elements) {
  if (desc.shape.rank() > 1 || desc.size() != static_cast<int64_t>(elements.size())) return {};
  if (desc.dtype != DType::kInt64 && desc.dtype != DType::kInt32) return {};
  if (!std::all_of(elements.begin(), elements.end(), [](const Dim& d) { return d.known(); })) {
    return {};
  }
  Tensor t = Tensor::Allocate(desc.dtype, desc.shape);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (desc.dtype == DType::kInt64) {
      t.data<int64_t>()[i] = elements[i].value();
    } else {
      t.data<int32_t>()[i] = static_cast<int32_t>(elements[i].value());
    }
  }
  return t;
}

// The entry for a choice, under "Conv: onednn (winograd: it is for 3x3 convolutions)".
PlanStats::KernelUse& UseOf(const OperatorDef& def, const KernelChoice& choice, PlanStats& stats) {
  std::string refused;
  for (const auto& [name, why] : choice.refused) {
    refused += fmt::format("{}{}: {}", refused.empty() ? "" : "; ", name, why);
  }
  const std::string reasons = refused.empty() ? "" : fmt::format(" ({})", refused);
  PlanStats::KernelUse& use =
      stats.kernels[fmt::format("{}: {}{}", def.name, choice.taken, reasons)];
  use.taken = choice.taken;
  use.refused = std::move(refused);
  return use;
}

}  // namespace

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, BindState state, int width, WeightCache& weights, Device& device)
      : graph_(graph),
        state_(std::move(state)),
        width_(width),
        weights_(weights),
        device_(device),
        plan_(std::make_shared<Plan>()),
        root_(graph.values.size()),
        needed_(graph.values.size(), false),
        first_(graph.values.size(), -1),
        last_(graph.values.size(), -1),
        known_index_(graph.values.size(), -1) {
    std::iota(root_.begin(), root_.end(), 0);
  }

  StatusOr<PlanPtr> Build() {
    for (int n : state_.nodes) CHAIRLIFT_RETURN_IF_ERROR(Classify(n));
    FindNeeded();
    FindLifetimes();
    ShareInPlace();
    PlaceOutputs();
    CHAIRLIFT_RETURN_IF_ERROR(Compile());
    CHAIRLIFT_RETURN_IF_ERROR(PlaceInArena());
    CHAIRLIFT_RETURN_IF_ERROR(Finish());
    return PlanPtr(plan_);
  }

 private:
  BoundValue& bound(ValueId id) { return state_.values[id]; }
  const Node& node(int n) const { return graph_.nodes[n]; }
  int end() const { return static_cast<int>(order_.size()); }

  // --- What happens to each node ---

  Status Classify(int n) {
    const Node& node = this->node(n);
    bool known = true;
    for (ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (!bound(id).resolved) {
        deferred_.push_back(n);
        return absl::OkStatus();
      }
      known = known && bound(id).value.present();
    }
    if (node.def->runs_bodies) return RunLate(n);
    known = known && node.def->deterministic;
    if (node.def->evaluate != nullptr) {
      if (known) {
        CHAIRLIFT_ASSIGN_OR_RETURN(const bool folded, Fold(node));
        if (folded) return absl::OkStatus();
      }
      return RunLate(n);
    }
    return ClassifyByShape(n, known);
  }

  Status RunLate(int n) {
    if (!device_.is_host()) {
      return Unimplemented("{}: its shapes or branches depend on data in the memory of device '{}'",
                           node(n).Describe(), device_.name());
    }
    late_.push_back(n);
    return absl::OkStatus();
  }

  Status ClassifyByShape(int n, bool known) {
    const Node& node = this->node(n);
    std::vector<ValueInfo> infos;
    infos.reserve(node.inputs.size());
    for (ValueId id : node.inputs) infos.push_back(id == kNoValue ? ValueInfo{} : Info(id));
    InferContext context(node.attributes, infos, static_cast<int>(node.outputs.size()));
    if (Status s = node.def->infer(context); !s.ok()) return Annotate(s, node.Describe());

    std::vector<BoundValue> outputs(node.outputs.size());
    bool all_known = true;
    bool row_major = true;
    int64_t largest = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      const ValueInfo& info = context.outputs()[i];
      if (!info.shape.concrete()) return RunLate(n);
      BoundValue& out = outputs[i];
      out.resolved = true;
      out.desc = {info.dtype, info.shape.ToShape(), graph_.values[node.outputs[i]].layout};
      const auto size = out.desc.StoredShape().Checked(DTypeSize(info.dtype));
      if (!size.ok()) {
        return Annotate(size.status(), node.Describe() + ": output " + std::to_string(i));
      }
      out.elements = info.elements;
      if (out.elements) out.value = FromElements(out.desc, *out.elements);
      all_known = all_known && out.value.present();
      row_major = row_major && out.desc.layout == Layout::kRowMajor;
      largest = std::max<int64_t>(largest, static_cast<int64_t>(out.desc.byte_size()));
    }
    // A view has no kernel, so nothing else checks the values of its second input.
    if (node.def->is_view && node.inputs.size() > 1 && node.inputs[1] != kNoValue &&
        !bound(node.inputs[1]).value.present()) {
      return RunLate(n);
    }
    if (!all_known && known && row_major && (node.def->is_view || largest <= kMaxFoldedBytes)) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const bool folded, Fold(node));
      if (folded) return absl::OkStatus();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) bound(node.outputs[i]) = std::move(outputs[i]);
    }
    if (all_known) {
      ++plan_->stats.folded_nodes;
      return absl::OkStatus();
    }
    if (IsView(node)) {
      if (bound(node.inputs[0]).desc.byte_size() != bound(node.outputs[0]).desc.byte_size()) {
        return Internal("{}: {} cannot be seen as {}", node.Describe(),
                        bound(node.inputs[0]).desc.shape.ToString(),
                        bound(node.outputs[0]).desc.shape.ToString());
      }
      BoundValue& out = bound(node.outputs[0]);
      if (const Tensor& value = bound(node.inputs[0]).value; value.present()) {
        out.value = value.Reshaped(out.desc.shape);
        return absl::OkStatus();
      }
      root_[node.outputs[0]] = root_[node.inputs[0]];
    }
    order_.push_back(n);
    return absl::OkStatus();
  }

  ValueInfo Info(ValueId id) {
    const BoundValue& v = bound(id);
    return {v.desc.dtype, SymbolicShape(v.desc.shape), v.value.present() ? &v.value : nullptr,
            v.elements};
  }

  // Computes a node now. False if its results are too large to keep.
  StatusOr<bool> Fold(const Node& node) {
    std::vector<Tensor> inputs;
    for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? Tensor() : bound(id).value);
    SoloTeam team;
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                               EvaluateNode(node, inputs, weights_, team, 0));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue && !node.def->is_view &&
          static_cast<int64_t>(outputs[i].byte_size()) > kMaxFoldedBytes) {
        return false;
      }
    }
    static const auto* const kUnbound = new BoundValue;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      BoundValue& out = bound(node.outputs[i]);
      out = *kUnbound;
      out.resolved = true;
      out.desc = {outputs[i].dtype(), outputs[i].shape(), Layout::kRowMajor};
      out.value = std::move(outputs[i]);
    }
    ++plan_->stats.folded_nodes;
    return true;
  }

  // Whether output 0 has the bytes of input 0. A reorder is a view if each channel has one element.
  bool IsView(const Node& node) {
    if (node.def->is_view) return true;
    if (node.def->domain != "chairlift" || node.def->name != "Reorder") return false;
    const TensorDesc &from = bound(node.inputs[0]).desc, &to = bound(node.outputs[0]).desc;
    return from.layout == to.layout ||
           (!from.filled_up() && !to.filled_up() &&
            from.shape.NumElements(std::min(2, from.shape.rank()), from.shape.rank()) == 1);
  }

  // --- Which nodes run, and how long their results live ---

  void FindNeeded() {
    const auto need = [&](ValueId id) {
      if (id != kNoValue && bound(id).resolved && !bound(id).value.present()) needed_[id] = true;
    };
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (!state_.output_done[i]) need(graph_.outputs[i]);
    }
    for (const auto* nodes : {&late_, &deferred_}) {
      for (int n : *nodes) {
        for (ValueId id : node(n).inputs) need(id);
      }
    }
    std::vector<int> kept;
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const Node& node = this->node(*it);
      const bool needed = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](ValueId id) { return id != kNoValue && needed_[id]; });
      if (!needed) continue;
      kept.push_back(*it);
      for (ValueId id : node.inputs) need(id);
    }
    order_.assign(kept.rbegin(), kept.rend());
  }

  // first_ is set for values that this plan's own steps write; last_ is by root.
  void FindLifetimes() {
    const auto use = [&](ValueId id, int at) {
      if (id != kNoValue) last_[root_[id]] = std::max(last_[root_[id]], at);
    };
    for (int at = 0; at < end(); ++at) {
      const Node& node = this->node(order_[at]);
      for (ValueId id : node.inputs) use(id, at);
      if (IsView(node)) continue;
      for (ValueId id : node.outputs) {
        if (id == kNoValue) continue;
        first_[id] = at;
        use(id, at);
      }
    }
    for (int n : late_) {
      for (ValueId id : node(n).inputs) use(id, end());
    }
    for (int n : deferred_) {
      for (ValueId id : node(n).inputs) {
        if (id != kNoValue && bound(id).resolved) use(id, kForever);
      }
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i];
      if (!state_.output_done[i] && bound(id).resolved) use(id, kForever);
    }
  }

  // Whether this plan's steps write the root's bytes, and so may choose its place.
  bool OwnRoot(ValueId root) const { return first_[root] >= 0; }

  void ShareInPlace() {
    for (int at = 0; at < end(); ++at) {
      const Node& node = this->node(order_[at]);
      if (!node.def->in_place || node.def->is_view) continue;
      const ValueId out = node.outputs[0];
      if (out == kNoValue) continue;
      const TensorDesc& desc = bound(out).desc;
      for (size_t i = 0; i < std::min<size_t>(2, node.inputs.size()); ++i) {
        const ValueId in = node.inputs[i];
        if (in == kNoValue) continue;
        const ValueId root = root_[in];
        const TensorDesc& from = bound(in).desc;
        if (!OwnRoot(root) || last_[root] != at || from.dtype != desc.dtype ||
            from.layout != desc.layout || from.shape != desc.shape) {
          continue;
        }
        last_[root] = last_[out];
        Redirect(out, root);
        break;
      }
    }
  }

  // All values placed at `from` move to the place of `to`.
  void Redirect(ValueId from, ValueId to) {
    for (ValueId& root : root_) {
      if (root == from) root = to;
    }
  }

  // --- Where everything lies ---

  void PlaceOutputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i];
      if (state_.output_done[i] || !bound(id).resolved) continue;
      state_.output_done[i] = true;
      const ValueId root = root_[id];
      const int index = static_cast<int>(i);
      if (OwnRoot(root) && bound(root).place.kind == Place::kAbsent) {
        bound(root).place = {Place::kOutput, i};
        plan_->new_outputs.push_back({index, bound(id).desc});
      } else {
        shared_outputs_.push_back(index);
      }
    }
  }

  Status Compile() {
    std::vector<TensorDesc> inputs;
    std::vector<TensorDesc> outputs;
    std::vector<const Tensor*> constants;
    const int64_t before = KernelMemory::Added();
    const absl::Cleanup count = [&] { kernel_bytes_ = KernelMemory::Added() - before; };
    for (int at = 0; at < end(); ++at) {
      const Node& node = this->node(order_[at]);
      if (IsView(node)) continue;
      inputs.clear();
      outputs.clear();
      constants.clear();
      bool own = false;  // packed forms of values that belong to this plan only are dropped with it
      for (ValueId id : node.inputs) {
        inputs.push_back(id == kNoValue ? TensorDesc{} : bound(id).desc);
        const bool known = id != kNoValue && bound(id).value.present();
        constants.push_back(known ? &bound(id).value : nullptr);
        own = own || (known && !graph_.values[id].is_constant());
      }
      WeightCache& weights = own ? OwnWeights() : weights_;
      for (ValueId id : node.outputs) {
        outputs.push_back(id == kNoValue ? TensorDesc{} : bound(id).desc);
      }
      KernelChoice choice;
      auto kernel = CompileOperator(*node.def, {node.attributes, inputs, outputs, constants,
                                                weights, width_, &choice, device_});
      if (!kernel.ok()) return Annotate(kernel.status(), node.Describe());
      Step step;
      if (!choice.taken.empty()) {
        PlanStats::KernelUse& use = UseOf(*node.def, choice, plan_->stats);
        if (use.steps++ == 0) use.first = node.name;
        step.use = &use;
      }
      step.node = &node;
      step.kernel = *std::move(kernel);
      step.has_scratch = step.kernel->scratch_bytes() > 0;
      plan_->steps.push_back(std::move(step));
      step_at_.push_back(at);
    }
    return absl::OkStatus();
  }

  Status PlaceInArena() {
    std::vector<MemoryRecord> records;
    std::vector<ValueId> owners;
    for (ValueId id = 0; id < static_cast<ValueId>(root_.size()); ++id) {
      if (root_[id] != id || !OwnRoot(id) || bound(id).place.kind != Place::kAbsent) continue;
      records.push_back({first_[id], last_[id], bound(id).desc.byte_size()});
      owners.push_back(id);
      plan_->stats.tensor_bytes += records.back().bytes;
    }
    for (size_t s = 0; s < plan_->steps.size(); ++s) {
      const size_t bytes = plan_->steps[s].kernel->scratch_bytes();
      records.push_back({step_at_[s], step_at_[s], bytes});
      plan_->stats.tensor_bytes += bytes;
    }
    const MemoryPlan memory = PlanMemory(records, state_.placed);
    plan_->stats.records = records;
    plan_->arena_bytes = memory.arena_bytes + kArenaAlignment;  // kernels may read past an end
    if (plan_->arena_bytes > kMaxArenaBytes) {
      return absl::OutOfRangeError(
          fmt::format("these shapes need {} bytes of intermediates, the limit is {}",
                      plan_->arena_bytes, kMaxArenaBytes));
    }
    for (size_t i = 0; i < owners.size(); ++i) {
      bound(owners[i]).place = {Place::kArena, memory.offsets[i]};
      if (last_[owners[i]] == kForever) {
        state_.placed.push_back({{0, kForever, records[i].bytes}, memory.offsets[i]});
      }
    }
    for (size_t s = 0; s < plan_->steps.size(); ++s) {
      plan_->steps[s].scratch_offset = memory.offsets[owners.size() + s];
    }
    // Views and in-place results have the places of their roots.
    for (ValueId id = 0; id < static_cast<ValueId>(root_.size()); ++id) {
      if (root_[id] != id && bound(id).place.kind == Place::kAbsent) {
        bound(id).place = bound(root_[id]).place;
      }
    }
    return absl::OkStatus();
  }

  // --- The plan itself ---

  Operand OperandOf(ValueId id) {
    if (id == kNoValue) return {};
    BoundValue& v = bound(id);
    if (!v.value.present()) return {v.place, v.desc};
    if (known_index_[id] < 0) {
      known_index_[id] = static_cast<int>(plan_->known.size());
      plan_->known.push_back(v.value);
    }
    return {{Place::kKnown, static_cast<size_t>(known_index_[id])}, v.desc};
  }

  WeightCache& OwnWeights() {
    if (plan_->own_weights_ == nullptr) plan_->own_weights_ = std::make_unique<WeightCache>();
    return *plan_->own_weights_;
  }

  // Copies operands that are known before the run to the device; constants once per model.
  Status UploadKnown() {
    if (device_.is_host() || plan_->known.empty()) return absl::OkStatus();
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device_.NewStream());
    for (size_t id = 0; id < known_index_.size(); ++id) {
      if (known_index_[id] < 0) continue;
      Tensor& known = plan_->known[known_index_[id]];
      const auto upload = [&]() -> StatusOr<Tensor> {
        CHAIRLIFT_ASSIGN_OR_RETURN(Tensor uploaded, stream->Upload(known));
        CHAIRLIFT_RETURN_IF_ERROR(stream->Record()->Wait());
        return uploaded;
      };
      WeightCache& weights = graph_.values[id].is_constant() ? weights_ : OwnWeights();
      CHAIRLIFT_ASSIGN_OR_RETURN(known, weights.Get(known, "uploaded", upload));
    }
    return absl::OkStatus();
  }

  Status Finish() {
    for (Step& step : plan_->steps) {
      for (ValueId id : step.node->inputs) step.inputs.push_back(OperandOf(id));
      for (ValueId id : step.node->outputs) {
        if (id != kNoValue && bound(id).value.present()) {
          // Known without running, but this step writes it anyway: into its own place.
          step.outputs.push_back({bound(id).place, bound(id).desc});
        } else {
          step.outputs.push_back(OperandOf(id));
        }
      }
    }
    for (int index : shared_outputs_) {
      plan_->shared_outputs.push_back({index, OperandOf(graph_.outputs[index])});
    }
    CHAIRLIFT_RETURN_IF_ERROR(UploadKnown());
    state_.fresh_late = 0;
    for (int n : late_) {
      LateNode late;
      late.node = &node(n);
      for (ValueId id : late.node->inputs) late.inputs.push_back(OperandOf(id));
      late.first_output = static_cast<int>(state_.late.size());
      for (ValueId id : late.node->outputs) state_.late.push_back(id);
      state_.fresh_late += late.node->outputs.size();
      plan_->late.push_back(std::move(late));
    }
    plan_->stats.steps = static_cast<int>(plan_->steps.size());
    plan_->stats.late_nodes = static_cast<int>(late_.size());
    plan_->stats.arena_bytes = plan_->arena_bytes;
    plan_->stats.held_bytes = HeldBytes();
    static std::atomic<int64_t> made{0};
    plan_->number = ++made;
    if (late_.empty()) return absl::OkStatus();
    state_.nodes = std::move(deferred_);
    plan_->rest = std::make_unique<const BindState>(std::move(state_));
    return absl::OkStatus();
  }

  int64_t HeldBytes() const {
    int64_t bytes = kStepBytes * (1 + plan_->stats.steps) + kernel_bytes_;
    for (size_t id = 0; id < known_index_.size(); ++id) {
      const bool of_the_class = known_index_[id] >= 0 && !graph_.values[id].is_constant();
      if (of_the_class) bytes += static_cast<int64_t>(plan_->known[known_index_[id]].byte_size());
    }
    if (plan_->own_weights_ != nullptr) {
      bytes += static_cast<int64_t>(plan_->own_weights_->byte_size());
    }
    if (late_.empty()) return bytes;
    return bytes + std::ssize(state_.values) * int64_t{sizeof(BoundValue)};
  }

  const Graph& graph_;
  BindState state_;
  const int width_;
  WeightCache& weights_;
  Device& device_;
  std::shared_ptr<Plan> plan_;
  int64_t kernel_bytes_ = 0;  // KernelMemory

  std::vector<int> order_;     // nodes that become steps or views
  std::vector<int> late_;      // nodes that this plan runs after its steps
  std::vector<int> deferred_;  // nodes that depend on late ones
  std::vector<ValueId> root_;  // by value: the value whose bytes it shares
  std::vector<bool> needed_;   // by value: its data is read
  std::vector<int> first_;     // by root: the position in order_ that writes it first
  std::vector<int> last_;      // the last position that reads it
  std::vector<int> step_at_;   // by step: its position in order_
  std::vector<int> shared_outputs_;
  std::vector<int> known_index_;  // by value: index in plan_->known
};

StatusOr<PlanPtr> BuildPlan(const Graph& graph, BindState state, int width, WeightCache& weights,
                            Device& device) {
  return PlanBuilder(graph, std::move(state), width, weights, device).Build();
}

BindState InitialState(const Graph& graph, std::span<const TensorDesc> inputs) {
  BindState state;
  state.values.resize(graph.values.size());
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (!value.is_constant()) continue;
    BoundValue& v = state.values[id];
    v.resolved = true;
    v.desc = {value.constant.dtype(), value.constant.shape(), Layout::kRowMajor};
    v.value = value.constant;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    BoundValue& v = state.values[graph.inputs[i]];
    v.resolved = true;
    v.desc = inputs[i];
    v.place = {Place::kInput, i};
  }
  state.nodes.resize(graph.nodes.size());
  std::iota(state.nodes.begin(), state.nodes.end(), 0);
  state.output_done.resize(graph.outputs.size(), false);
  return state;
}

BindState StateAfter(const Graph& graph, const Plan& plan, std::span<const Tensor> late) {
  BindState state = *plan.rest;
  const size_t first = state.late.size() - state.fresh_late;
  for (size_t i = first; i < state.late.size(); ++i) {
    if (state.late[i] == kNoValue) continue;
    BoundValue& v = state.values[state.late[i]];
    v.resolved = true;
    v.desc = {late[i].dtype(), late[i].shape(), graph.values[state.late[i]].layout};
    v.place = {Place::kLate, i};
  }
  return state;
}

}  // namespace chairlift
