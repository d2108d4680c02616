#include "runtime/control_flow.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "chairlift/text.h"

namespace chairlift {
namespace {

StatusOr<const Graph*> Body(const Node& node, const char* attribute) {
  const auto* graph = node.attributes.Find<std::shared_ptr<const Graph>>(attribute);
  if (graph == nullptr || *graph == nullptr) {
    return InvalidArgument("{}: attribute '{}' must be a graph", node.Describe(), attribute);
  }
  return graph->get();
}

StatusOr<bool> ReadBool(const Node& node, const Tensor& t, const char* what) {
  if (t.dtype() != DType::kBool || t.size() != 1) {
    return InvalidArgument("{}: {} must be one bool, not {} {}", node.Describe(), what,
                           DTypeName(t.dtype()), t.shape().ToString());
  }
  return t.values<bool>()[0];
}

StatusOr<std::vector<Tensor>> RunIf(const Node& node, std::span<const Tensor> inputs,
                                    RunSubgraph run) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Graph* otherwise, Body(node, "else_branch"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Graph* then, Body(node, "then_branch"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const bool condition, ReadBool(node, inputs[0], "the condition"));
  const auto captures = inputs.subspan(1);
  if (static_cast<int>(captures.size()) != otherwise->num_captures + then->num_captures) {
    return Internal("{}: {} captures passed, {} needed", node.Describe(), captures.size(),
                    otherwise->num_captures + then->num_captures);
  }
  const Graph& branch = condition ? *then : *otherwise;
  if (branch.outputs.size() < node.outputs.size()) {
    return InvalidArgument("{}: {} outputs, but a branch gives {}", node.Describe(),
                           node.outputs.size(), branch.outputs.size());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                             run(branch, condition ? captures.subspan(otherwise->num_captures)
                                                   : captures.first(otherwise->num_captures)));
  outputs.resize(node.outputs.size());  // trailing outputs may not be requested
  return outputs;
}

// Uses the loop body's output shapes for stacks that stay empty. Sizes that depend on the request
// follow from the shapes that the body would have run on. If those do not fit the body, uses what
// holds for all requests: a body that never runs must not fail.
Graph BodyFor(const Graph& body, std::span<const Shape> arguments) {
  Graph graph = body;
  for (size_t i = 0; i < arguments.size(); ++i) {
    Value& value = graph.values[graph.inputs[i]];
    value.shape = SymbolicShape(arguments[i]);
    value.elements.reset();
  }
  return InferShapes(graph).ok() ? graph : body;
}

// Stacks one tensor per iteration along a new axis.
class Stack {
 public:
  // `bytes_left` must outlive it.
  explicit Stack(int64_t& bytes_left) : bytes_left_(bytes_left) {}

  Status Add(const Node& node, Tensor slice) {
    if (!slices_.empty() &&
        (slice.shape() != slices_[0].shape() || slice.dtype() != slices_[0].dtype())) {
      return InvalidArgument("{}: a scan output's shape changes between iterations, from {} to {}",
                             node.Describe(), slices_[0].shape().ToString(),
                             slice.shape().ToString());
    }
    // A slice counts twice: by itself and as a part of the result. kKeptBytes is the overhead of
    // each slice that is kept, however small.
    constexpr int64_t kKeptBytes = 512;
    bytes_left_ -= 2 * static_cast<int64_t>(ContentBytes(slice)) + kKeptBytes;
    if (bytes_left_ < 0) {
      return absl::OutOfRangeError(fmt::format(
          "{}: the scan outputs of {} iterations need more memory than one task may have",
          node.Describe(), slices_.size() + 1));
    }
    slices_.push_back(std::move(slice));
    return absl::OkStatus();
  }

  // If nothing was added, `like` gives the type and the known part of the shape.
  StatusOr<Tensor> Finish(const Node& node, const Value& like, int64_t axis, bool reverse) {
    Shape shape;
    DType dtype = like.dtype;
    if (!slices_.empty()) {
      shape = slices_[0].shape();
      dtype = slices_[0].dtype();
    } else if (like.shape.has_rank()) {
      for (const Dim& d : like.shape.dims()) shape.Append(d.known() ? d.value() : 0);
    }
    const int rank = shape.rank() + 1;
    if (axis < -rank || axis >= rank) {
      return InvalidArgument("{}: scan output axis {} is outside rank {}", node.Describe(), axis,
                             rank);
    }
    if (axis < 0) axis += rank;
    const int64_t outer = shape.NumElements(0, static_cast<int>(axis));
    const size_t inner =
        static_cast<size_t>(shape.NumElements(static_cast<int>(axis), rank - 1)) * DTypeSize(dtype);
    const int64_t count = static_cast<int64_t>(slices_.size());
    shape.Insert(static_cast<int>(axis), count);
    CHAIRLIFT_RETURN_IF_ERROR(shape.Checked(DTypeSize(dtype)).status());
    Tensor out = Tensor::Allocate(dtype, shape);
    for (int64_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const char*>(slices_[reverse ? count - 1 - i : i].raw());
      auto* to = static_cast<char*>(out.raw()) + static_cast<size_t>(i) * inner;
      if (inner == 0) continue;
      for (int64_t o = 0; o < outer; ++o) {
        std::memcpy(to + static_cast<size_t>(o * count) * inner,
                    from + static_cast<size_t>(o) * inner, inner);
      }
    }
    if (dtype == DType::kBytes) out = out.Clone();  // the slices own the strings
    slices_.clear();
    return out;
  }

 private:
  int64_t& bytes_left_;  // of the node
  std::vector<Tensor> slices_;
};

StatusOr<std::vector<Tensor>> RunLoop(const Node& node, std::span<const Tensor> inputs,
                                      int64_t max_bytes, RunSubgraph run) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Graph* body, Body(node, "body"));
  const int own = static_cast<int>(inputs.size()) - body->num_captures;
  const int carried = own - 2;
  const int scanned = static_cast<int>(body->outputs.size()) - 1 - carried;
  if (carried < 0 || scanned < 0 || body->num_formal_inputs() != carried + 2) {
    return InvalidArgument(
        "{}: the body takes {} and gives {} values, which does not fit {} inputs", node.Describe(),
        body->num_formal_inputs(), body->outputs.size(), own);
  }
  if (static_cast<int>(node.outputs.size()) > carried + scanned) {
    return InvalidArgument("{}: {} outputs, but the body gives {}", node.Describe(),
                           node.outputs.size(), carried + scanned);
  }
  int64_t trips = std::numeric_limits<int64_t>::max();
  if (inputs[0].present()) {
    if (inputs[0].dtype() != DType::kInt64 || inputs[0].size() != 1) {
      return InvalidArgument("{}: the trip count must be one int64", node.Describe());
    }
    trips = inputs[0].values<int64_t>()[0];
  }
  bool condition = true;
  if (inputs[1].present()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(condition, ReadBool(node, inputs[1], "the condition"));
  }

  std::vector<Stack> stacks(static_cast<size_t>(scanned), Stack(max_bytes));
  // iteration, condition, carried..., captures...
  std::vector<Tensor> arguments(2);
  arguments.insert(arguments.end(), inputs.begin() + 2, inputs.end());
  std::optional<Graph> never_run;
  if (scanned > 0 && (trips <= 0 || !condition)) {
    std::vector<Shape> shapes(2);
    for (size_t i = 2; i < arguments.size(); ++i) shapes.push_back(arguments[i].shape());
    never_run = BodyFor(*body, shapes);
  }
  for (int64_t i = 0; i < trips && condition; ++i) {
    if (i == kMaxLoopIterations) {
      return absl::OutOfRangeError(
          fmt::format("{}: no end after {} iterations", node.Describe(), i));
    }
    arguments[0] = Tensor::Scalar<int64_t>(i);
    arguments[1] = Tensor::Scalar<bool>(condition);
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> results, run(*body, arguments));
    CHAIRLIFT_ASSIGN_OR_RETURN(condition, ReadBool(node, results[0], "the body's condition"));
    for (int c = 0; c < carried; ++c) arguments[2 + c] = std::move(results[1 + c]);
    for (int s = 0; s < scanned; ++s) {
      CHAIRLIFT_RETURN_IF_ERROR(stacks[s].Add(node, std::move(results[1 + carried + s])));
    }
  }

  std::vector<Tensor> outputs(arguments.begin() + 2, arguments.begin() + 2 + carried);
  const Graph& told = never_run ? *never_run : *body;
  for (int s = 0; s < scanned; ++s) {
    const Value& like = told.values[told.outputs[1 + carried + s]];
    CHAIRLIFT_ASSIGN_OR_RETURN(Tensor t, stacks[s].Finish(node, like, 0, false));
    outputs.push_back(std::move(t));
  }
  outputs.resize(node.outputs.size());
  return outputs;
}

// Element `index` along `axis`; the axis is removed.
Tensor Slice(const Tensor& t, int axis, int64_t index) {
  Shape shape = t.shape();
  shape.Erase(axis);
  const int64_t outer = t.shape().NumElements(0, axis);
  const int64_t count = t.shape()[axis];
  const size_t inner =
      static_cast<size_t>(shape.NumElements(axis, shape.rank())) * DTypeSize(t.dtype());
  if (outer == 1) {
    auto* data = const_cast<char*>(static_cast<const char*>(t.raw()));
    return Tensor::Wrap(t.dtype(), shape, data + static_cast<size_t>(index) * inner, t.owner());
  }
  Tensor out = Tensor::Allocate(t.dtype(), shape);
  for (int64_t o = 0; inner > 0 && o < outer; ++o) {
    std::memcpy(static_cast<char*>(out.raw()) + static_cast<size_t>(o) * inner,
                static_cast<const char*>(t.raw()) + static_cast<size_t>(o * count + index) * inner,
                inner);
  }
  return out;
}

StatusOr<std::vector<Tensor>> RunScan(const Node& node, std::span<const Tensor> inputs,
                                      int64_t max_bytes, RunSubgraph run) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Graph* body, Body(node, "body"));
  const int own = static_cast<int>(inputs.size()) - body->num_captures;
  const int64_t scan_attribute = node.attributes.Int("num_scan_inputs", 0);
  if (scan_attribute < 1 || scan_attribute > own) {
    return InvalidArgument("{}: num_scan_inputs is {}, with {} inputs", node.Describe(),
                           scan_attribute, own);
  }
  const int scan_inputs = static_cast<int>(scan_attribute);
  const int states = own - scan_inputs;
  const int scan_outputs = static_cast<int>(body->outputs.size()) - states;
  if (scan_outputs < 0 || body->num_formal_inputs() != own) {
    return InvalidArgument(
        "{}: the body takes {} and gives {} values, which does not fit {} inputs", node.Describe(),
        body->num_formal_inputs(), body->outputs.size(), own);
  }
  if (static_cast<int>(node.outputs.size()) > states + scan_outputs) {
    return InvalidArgument("{}: {} outputs, but the body gives {}", node.Describe(),
                           node.outputs.size(), states + scan_outputs);
  }
  const auto per_item = [&](const char* name, int count) -> StatusOr<std::vector<int64_t>> {
    std::vector<int64_t> values = node.attributes.Ints(name);
    if (!values.empty() && static_cast<int>(values.size()) != count) {
      return InvalidArgument("{}: {} has {} entries for {}", node.Describe(), name, values.size(),
                             count);
    }
    values.resize(count, 0);
    return values;
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(auto in_axes, per_item("scan_input_axes", scan_inputs));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto in_directions,
                             per_item("scan_input_directions", scan_inputs));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto out_axes, per_item("scan_output_axes", scan_outputs));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto out_directions,
                             per_item("scan_output_directions", scan_outputs));

  int64_t trips = -1;
  for (int i = 0; i < scan_inputs; ++i) {
    const Tensor& t = inputs[states + i];
    const int rank = t.shape().rank();
    if (!t.present() || in_axes[i] < -rank || in_axes[i] >= rank) {
      return InvalidArgument("{}: scan input {} of shape {} has no axis {}", node.Describe(), i,
                             t.shape().ToString(), in_axes[i]);
    }
    if (in_axes[i] < 0) in_axes[i] += rank;
    const int64_t count = t.shape()[static_cast<int>(in_axes[i])];
    if (trips >= 0 && count != trips) {
      return InvalidArgument("{}: scan inputs have {} and {} steps", node.Describe(), trips, count);
    }
    trips = count;
  }

  std::optional<Graph> never_run;
  if (scan_outputs > 0 && trips == 0) {
    std::vector<Shape> shapes;
    for (const Tensor& t : inputs) shapes.push_back(t.shape());
    for (int i = 0; i < scan_inputs; ++i) shapes[states + i].Erase(static_cast<int>(in_axes[i]));
    never_run = BodyFor(*body, shapes);
  }
  std::vector<Stack> stacks(static_cast<size_t>(scan_outputs), Stack(max_bytes));
  std::vector<Tensor> arguments(inputs.begin(), inputs.end());
  for (int64_t step = 0; step < trips; ++step) {
    for (int i = 0; i < scan_inputs; ++i) {
      const int64_t index = in_directions[i] == 0 ? step : trips - 1 - step;
      arguments[states + i] = Slice(inputs[states + i], static_cast<int>(in_axes[i]), index);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> results, run(*body, arguments));
    for (int s = 0; s < states; ++s) arguments[s] = std::move(results[s]);
    for (int s = 0; s < scan_outputs; ++s) {
      CHAIRLIFT_RETURN_IF_ERROR(stacks[s].Add(node, std::move(results[states + s])));
    }
  }

  std::vector<Tensor> outputs(arguments.begin(), arguments.begin() + states);
  const Graph& told = never_run ? *never_run : *body;
  for (int s = 0; s < scan_outputs; ++s) {
    const Value& like = told.values[told.outputs[states + s]];
    CHAIRLIFT_ASSIGN_OR_RETURN(Tensor t,
                               stacks[s].Finish(node, like, out_axes[s], out_directions[s] != 0));
    outputs.push_back(std::move(t));
  }
  outputs.resize(node.outputs.size());
  return outputs;
}

}  // namespace

StatusOr<std::vector<Tensor>> RunControlFlow(const Node& node, std::span<const Tensor> inputs,
                                             int64_t max_bytes, RunSubgraph run) {
  if (node.def->name == "If") return RunIf(node, inputs, run);
  if (node.def->name == "Loop") return RunLoop(node, inputs, max_bytes, run);
  return RunScan(node, inputs, max_bytes, run);
}

}  // namespace chairlift
