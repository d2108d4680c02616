#include "graph/ragged/trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "graph/full_precision.h"
#include "graph/ragged/evaluate_values.h"

namespace chairlift::ragged {
namespace {

// Relative to the largest element of an answer. If values are rounded to 8 bits, sums in another
// order may end in the next step.
constexpr double kTolerance = 1e-3;
constexpr double kToleranceOfSteps = 3e-2;

double ToleranceOf(const Graph& graph) {
  const bool steps = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    const std::string& op = node.def->name;
    return op == "RaggedQuantize" || op == "QuantizeLinear" || op == "Requantize" ||
           op.starts_with("QLinear");
  });
  return steps ? kToleranceOfSteps : kTolerance;
}

struct Trial {
  int64_t batch, length;
  std::map<int, Tensor> inputs;  // of the original, by index
  std::vector<Tensor> alone;     // outputs of the original
};

// Marks and small numbers, which are valid in any table; floats around 0.
Tensor Fill(DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor t = Tensor::Allocate(dtype, shape);
  std::memset(t.raw(), 0, t.byte_size());
  for (int64_t i = 0; i < t.size(); ++i) {
    const bool mark = random() % 3 != 0;
    const float f = static_cast<float>(static_cast<double>(random() % 2000) * 1e-3 - 1.0);
    if (dtype == DType::kInt64) t.data<int64_t>()[i] = mark;
    if (dtype == DType::kInt32) t.data<int32_t>()[i] = mark;
    if (dtype == DType::kBool) t.data<bool>()[i] = mark;
    if (dtype == DType::kFloat) t.data<float>()[i] = f;
    if (dtype == DType::kDouble) t.data<double>()[i] = f;
    if (dtype == DType::kFloat16) t.data<Float16>()[i] = Float16(f);
    if (dtype == DType::kBFloat16) t.data<BFloat16>()[i] = BFloat16(f);
  }
  return t;
}

// Marks every token of each row, or its first.
void MarkTokens(Tensor& marks, bool all) {
  const int64_t length = marks.shape()[1];
  for (int64_t i = 0; i < marks.size(); i += all ? 1 : length) {
    if (marks.dtype() == DType::kInt64) marks.data<int64_t>()[i] = 1;
    if (marks.dtype() == DType::kInt32) marks.data<int32_t>()[i] = 1;
    if (marks.dtype() == DType::kBool) marks.data<bool>()[i] = true;
    if (marks.dtype() == DType::kFloat) marks.data<float>()[i] = 1.0f;
  }
}

Status MakeTrial(const Graph& graph, const RaggedModel& model, Trial& trial, std::mt19937& random) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& value = graph.values[static_cast<size_t>(graph.inputs[i])];
    Shape shape;
    for (int axis = 0; axis < value.shape.rank(); ++axis) {
      const Dim& dim = value.shape[axis];
      shape.Append(dim.known() ? dim.value() : axis == 0 ? trial.batch : trial.length);
    }
    trial.inputs[static_cast<int>(i)] = Fill(value.dtype, shape, random);
  }
  for (const int input : model.first_marks) MarkTokens(trial.inputs.at(input), false);
  for (const int input : model.all_marks) MarkTokens(trial.inputs.at(input), true);
  CHAIRLIFT_ASSIGN_OR_RETURN(trial.alone, EvaluateValues(graph, graph.outputs, trial.inputs, {}));
  return absl::OkStatus();
}

// All trials, packed.
std::map<int, Tensor> Pack(const RaggedModel& model, const std::vector<Trial>& trials) {
  std::vector<int64_t> offsets = {0}, positions, requests = {0};
  for (const Trial& trial : trials) {
    for (int64_t b = 0; b < trial.batch; ++b) {
      offsets.push_back(offsets.back() + trial.length);
      for (int64_t l = 0; l < trial.length; ++l) positions.push_back(l);
    }
    requests.push_back(requests.back() + trial.batch);
  }
  requests.resize(offsets.size(), requests.back());
  const auto integers = [](const std::vector<int64_t>& values) {
    return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                               std::span<const int64_t>(values));
  };
  std::map<int, Tensor> packed;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const RaggedInput& input = model.inputs[i];
    Tensor& to = packed[static_cast<int>(i)];
    if (input.source < 0) {
      to = integers(input.role == RaggedRole::kOffsets     ? offsets
                    : input.role == RaggedRole::kPositions ? positions
                                                           : requests);
      continue;
    }
    const Tensor& first = trials[0].inputs.at(input.source);
    Shape shape = first.shape();
    if (input.role == RaggedRole::kTokens) shape.Erase(0);
    shape[0] = input.role == RaggedRole::kTokens ? offsets.back()
                                                 : static_cast<int64_t>(offsets.size()) - 1;
    to = Tensor::Allocate(first.dtype(), shape);
    auto* at = static_cast<std::byte*>(to.raw());
    for (const Trial& trial : trials) {
      const Tensor& from = trial.inputs.at(input.source);
      std::memcpy(at, from.raw(), from.byte_size());
      at += from.byte_size();
    }
  }
  return packed;
}

// Whether `count` floats are equal up to rounding.
bool Close(const float* a, const float* b, int64_t count, double tolerance) {
  double range = 1e-6;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(a[i])) range = std::max(range, std::abs(static_cast<double>(a[i])));
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool equal = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!equal && !(std::abs(static_cast<double>(a[i]) - b[i]) <= tolerance * range)) return false;
  }
  return true;
}

// Whether `packed`, from entry `first` of dimension 0 on, equals `alone`.
bool Same(const Tensor& alone, const Tensor& packed, int64_t first, int64_t count,
          double tolerance) {
  const int64_t columns = packed.shape().NumElements(1, packed.shape().rank());
  if (packed.dtype() != alone.dtype() || alone.size() != count * columns ||
      packed.shape()[0] < first + count) {
    return false;
  }
  if (alone.dtype() == DType::kFloat) {
    return Close(alone.data<float>(), packed.data<float>() + first * columns, alone.size(),
                 tolerance);
  }
  // Half precision rounds too coarsely to compare; other types are exact.
  if (alone.dtype() != DType::kInt64 && alone.dtype() != DType::kInt32 &&
      alone.dtype() != DType::kBool) {
    return true;
  }
  const size_t skip = static_cast<size_t>(first * columns) * DTypeSize(alone.dtype());
  return std::memcmp(alone.raw(), static_cast<const std::byte*>(packed.raw()) + skip,
                     alone.byte_size()) == 0;
}

}  // namespace

Status TryPacked(const Graph& original, RaggedModel& model) {
  const int64_t most = model.max_length > 0 ? model.max_length : 64;
  if (model.min_length > most) {
    return Unimplemented("no length fits: at least {}, at most {}", model.min_length, most);
  }
  // Both graphs compute matrix products in full precision. If products rounded their operands to 8
  // bits, the order of sums could change a result more than a wrong proof might.
  const std::optional<Graph> full = InFullPrecision(original);
  const std::optional<Graph> full_packed = InFullPrecision(model.graph);
  const Graph& packed_graph = full_packed ? *full_packed : model.graph;
  std::mt19937 random(17);
  std::vector<Trial> trials;
  for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{2, 3}, {1, 6}}) {
    trials.push_back({batch, std::clamp(length, model.min_length, most), {}, {}});
    if (Status status = MakeTrial(full ? *full : original, model, trials.back(), random);
        !status.ok()) {
      model.notes.push_back("not tried on examples: " + Message(status));
      return absl::OkStatus();
    }
  }
  const auto packed = EvaluateValues(packed_graph, packed_graph.outputs, Pack(model, trials), {});
  if (!packed.ok()) return Unimplemented("packed it fails: {}", Message(packed.status()));
  const double tolerance = ToleranceOf(model.graph);
  int64_t token = 0, row = 0;
  for (const Trial& trial : trials) {
    for (size_t i = 0; i < trial.alone.size(); ++i) {
      const bool tokens = model.output_is_tokens[i];
      if (!Same(trial.alone[i], (*packed)[i], tokens ? token : row,
                tokens ? trial.batch * trial.length : trial.batch, tolerance)) {
        return Unimplemented("packed it gives another output '{}'",
                             original.values[static_cast<size_t>(original.outputs[i])].name);
      }
    }
    token += trial.batch * trial.length;
    row += trial.batch;
  }
  model.notes.emplace_back("tried on examples, it answers as the model does");
  return absl::OkStatus();
}

}  // namespace chairlift::ragged
