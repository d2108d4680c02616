#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "chairlift/text.h"
#include "device/device.h"
#include "graph/bodies.h"
#include "graph/narrow.h"
#include "graph/narrow_products.h"
#include "runtime/graph_runner.h"

namespace chairlift {

struct Executable::Impl {
  Graph graph;
  std::vector<SymbolicSpec> inputs;
  std::vector<SymbolicSpec> outputs;
  std::vector<PassReport> reports;
  Device* device = nullptr;
  WeightCache weights;
  std::unique_ptr<GraphRunner> runner;

  // The same error with the shapes of the inputs for which an operator failed.
  Status WithShapes(const Status& status, std::span<const Tensor> given) const;
  Status CheckCount(size_t given) const;
  Status CheckInputs(std::span<const Tensor> given) const;
  template <typename ShapeOf>
  Status CheckShapes(size_t count, ShapeOf shape_of) const;
};

namespace {

SymbolicShape StoredShape(const Value& value) {
  if (value.layout == Layout::kRowMajor) return value.shape;
  std::vector<Dim> dims = value.shape.dims();
  dims[1] = Dim(ChannelBlocks(dims[1].value()));
  dims.emplace_back(ChannelBlock());
  return SymbolicShape(std::move(dims));
}

}  // namespace

std::vector<SymbolicSpec> Specs(const Graph& graph, std::span<const ValueId> ids) {
  std::vector<SymbolicSpec> out;
  for (ValueId id : ids) {
    const Value& v = graph.values[id];
    out.push_back({v.name, v.dtype, StoredShape(v)});
  }
  return out;
}

namespace {

// Plausible input shapes: 1 for unknown leading dimensions, a few dozen for others. Nothing if a
// rank is unknown.
std::optional<std::vector<TensorDesc>> LikelyInputs(const std::vector<SymbolicSpec>& inputs) {
  constexpr int64_t kLikelySize = 32;
  std::map<std::string, int64_t> symbols;
  std::vector<TensorDesc> descs;
  for (const SymbolicSpec& input : inputs) {
    if (!input.shape.has_rank()) return std::nullopt;
    Shape shape;
    for (const Dim& d : input.shape.dims()) {
      const int64_t guess = shape.rank() == 0 ? 1 : kLikelySize;
      shape.Append(d.known() ? d.value() : symbols.emplace(d.ToString(), guess).first->second);
    }
    descs.push_back({input.dtype, shape});
  }
  return descs;
}

size_t ConstantBytes(const Graph& graph) {
  size_t bytes = 0;
  for (const Value& v : graph.values) bytes += ContentBytes(v.constant);
  for (const Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) bytes += ConstantBytes(*body);
  }
  return bytes;
}

}  // namespace

template <typename ShapeOf>
Status Executable::Impl::CheckShapes(size_t count, ShapeOf shape_of) const {
  struct Symbol {
    const std::string* name;
    int64_t value;
    size_t input;  // the input that determined it
  };
  absl::InlinedVector<Symbol, 8> symbols;
  for (size_t i = 0; i < count; ++i) {
    const SymbolicSpec& spec = inputs[i];
    const Shape& shape = shape_of(i);
    if (!spec.shape.has_rank()) continue;
    bool fits = shape.rank() == spec.shape.rank();
    for (int d = 0; fits && d < spec.shape.rank(); ++d) {
      const Dim& dim = spec.shape[d];
      if (dim.known()) fits = dim.value() == shape[d];
      if (!dim.is_symbol()) continue;
      const auto seen = std::find_if(symbols.begin(), symbols.end(),
                                     [&](const Symbol& s) { return *s.name == dim.symbol(); });
      if (seen == symbols.end()) {
        symbols.push_back({&dim.symbol(), shape[d], i});
      } else if (seen->value != shape[d]) {
        return InvalidArgument(
            "input '{}' has shape {}, the model takes {}, and '{}' is {} in input '{}'", spec.name,
            shape.ToString(), spec.shape.ToString(), dim.symbol(), seen->value,
            inputs[seen->input].name);
      }
    }
    if (!fits) {
      return InvalidArgument("input '{}' has shape {}, the model takes {}", spec.name,
                             shape.ToString(), spec.shape.ToString());
    }
  }
  return absl::OkStatus();
}

Status Executable::Impl::CheckInputs(std::span<const Tensor> given) const {
  CHAIRLIFT_RETURN_IF_ERROR(CheckCount(given.size()));
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].dtype() != inputs[i].dtype) {
      return InvalidArgument("input '{}' has element type {}, the model takes {}", inputs[i].name,
                             DTypeName(given[i].dtype()), DTypeName(inputs[i].dtype));
    }
    if (given[i].device() != device->memory()) {
      return InvalidArgument(
          "input '{}' is in the memory of device '{}', the model runs on '{}'", inputs[i].name,
          given[i].device() == nullptr ? "cpu" : given[i].device()->name(), device->name());
    }
  }
  return CheckShapes(given.size(), [&](size_t i) -> const Shape& { return given[i].shape(); });
}

Status Executable::Impl::WithShapes(const Status& status, std::span<const Tensor> given) const {
  if (!absl::IsInvalidArgument(status)) return status;
  constexpr size_t kMost = 8;
  std::string shapes;
  for (size_t i = 0; i < std::min(given.size(), kMost); ++i) {
    shapes +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", inputs[i].name, given[i].shape().ToString());
  }
  return InvalidArgument("{} (inputs: {}{})", Message(status), shapes,
                         given.size() > kMost ? ", …" : "");
}

Status Executable::Impl::CheckCount(size_t given) const {
  if (given == inputs.size()) return absl::OkStatus();
  return InvalidArgument("{} inputs given, the model takes {}", given, inputs.size());
}

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::~Executable() = default;

StatusOr<std::unique_ptr<Executable>> Executable::Create(Graph graph,
                                                         const ExecutableOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->inputs = Specs(graph, graph.inputs);
  impl->outputs = Specs(graph, graph.outputs);  // with the names, which passes may lose
  if (!options.passed) {
    std::set<std::string> disabled = options.disabled_passes;
    if (!options.device->is_host() || options.narrow_to != DType::kUndefined) {
      disabled.insert("assign_layouts");  // it serves only the CPU's float32 kernels
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(impl->reports, RunPasses(graph, disabled));
  }
  if (options.narrow_to != DType::kUndefined) {
    CHAIRLIFT_RETURN_IF_ERROR(NarrowFloats(graph, options.narrow_to));
  }
  if (options.round_products_to != DType::kUndefined) {
    MarkNarrowProducts(graph, options.round_products_to);
  }
  impl->graph = std::move(graph);
  for (size_t i = 0; i < impl->outputs.size(); ++i) {
    const Value& value = impl->graph.values[impl->graph.outputs[i]];
    impl->outputs[i].dtype = value.dtype;
    impl->outputs[i].shape = StoredShape(value);
  }
  impl->device = options.device;
  const Value* const text = FindText(impl->graph, true);
  if (!options.device->is_host() && text != nullptr) {
    return Unimplemented("'{}' has strings, which only device 'cpu' computes with, not '{}'",
                         text->name, options.device->name());
  }
  impl->runner = std::make_unique<GraphRunner>(impl->graph, options.max_plan_bytes, impl->weights,
                                               *options.device);
  // Reports nodes without a kernel now instead of at the first request. The guessed shapes may be
  // wrong for the model, so other errors are ignored.
  if (const auto descs = LikelyInputs(impl->inputs)) {
    const Status status = impl->runner->Prepare(*descs, 1).status();
    if (absl::IsUnimplemented(status)) return status;
  }
  return std::unique_ptr<Executable>(new Executable(std::move(impl)));
}

const std::vector<SymbolicSpec>& Executable::inputs() const { return impl_->inputs; }
const std::vector<SymbolicSpec>& Executable::outputs() const { return impl_->outputs; }
const Graph& Executable::graph() const { return impl_->graph; }
const std::vector<PassReport>& Executable::pass_reports() const { return impl_->reports; }

StatusOr<std::vector<Tensor>> Executable::Run(std::span<const Tensor> inputs, Team& team,
                                              int worker, Arena& arena, const StopFlag* stop,
                                              NodeTimer* timer) {
  CHAIRLIFT_RETURN_IF_ERROR(impl_->CheckInputs(inputs));
  if (&arena.stream().device() != impl_->device) {
    return InvalidArgument("the arena is of device '{}', the model runs on '{}'",
                           arena.stream().device().name(), impl_->device->name());
  }
  StatusOr<std::vector<Tensor>> run =
      impl_->runner->Run(inputs, {team, worker, arena, stop, timer});
  if (!run.ok()) return impl_->WithShapes(run.status(), inputs);
  std::vector<Tensor> outputs = *std::move(run);
  // What only passes through (an input, a constant, a view of them) is copied: callers may write
  // to the outputs, and to the inputs once the run is over.
  for (Tensor& t : outputs) {
    if (!t.present() || t.owner().use_count() == 1) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(t, arena.stream().Clone(t));
  }
  return outputs;
}

StatusOr<PlanStats> Executable::Prepare(std::span<const Shape> input_shapes, int width) {
  CHAIRLIFT_RETURN_IF_ERROR(impl_->CheckCount(input_shapes.size()));
  CHAIRLIFT_RETURN_IF_ERROR(impl_->CheckShapes(
      input_shapes.size(), [&](size_t i) -> const Shape& { return input_shapes[i]; }));
  for (const Shape& shape : input_shapes) {
    CHAIRLIFT_RETURN_IF_ERROR(shape.Checked(sizeof(double)).status());
  }
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < input_shapes.size(); ++i) {
    descs.push_back({impl_->inputs[i].dtype, input_shapes[i]});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const PlanPtr plan, impl_->runner->Prepare(descs, width));
  return plan->stats;
}

const Device& Executable::device() const { return *impl_->device; }

size_t Executable::weight_bytes() const {
  return ConstantBytes(impl_->graph) + impl_->weights.byte_size();
}

}  // namespace chairlift
