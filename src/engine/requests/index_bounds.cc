#include "engine/requests/index_bounds.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/status.h"
#include "ops/axes.h"

namespace chairlift {
namespace {

// visit(values) for a tensor of a type that may be an index.
template <typename Visit>
Status VisitNumbers(const Tensor& tensor, Visit visit) {
  switch (tensor.dtype()) {
    case DType::kInt64:
      return visit(tensor.values<int64_t>());
    case DType::kInt32:
      return visit(tensor.values<int32_t>());
    case DType::kFloat:
      return visit(tensor.values<float>());
    default:
      return absl::OkStatus();
  }
}

// Whether output 0 has every element of input 0, possibly with another type.
bool KeepsEveryElement(const OperatorDef& def) {
  return def.is_view || (def.domain.empty() && (def.name == "Cast" || def.name == "Transpose"));
}

// "[0,3]", the position of an element given its row-major index.
std::string Position(const Shape& shape, int64_t place) {
  std::vector<int64_t> position(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    position[static_cast<size_t>(axis)] = place % shape[axis];
    place /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(position, ","));
}

// Whether elements of the input may belong to tokens that are left out: it has one per token.
bool HasElementPerToken(const Signature& signature, const ValidatedRequest& request, size_t input) {
  return signature.sequences && signature.sequences->token_inputs[input] &&
         static_cast<size_t>(request.inputs[input].size()) == request.left_out.size();
}

Status CheckIndexBound(const Signature& signature, const IndexBound& bound,
                       const ValidatedRequest& request, size_t input) {
  const Tensor& tensor = request.inputs[input];
  const bool skips = HasElementPerToken(signature, request, input);
  const auto end = static_cast<double>(bound.bound);
  return VisitNumbers(tensor, [&](auto values) -> Status {
    for (size_t i = 0; i < values.size(); ++i) {
      if (skips && request.left_out[i]) continue;
      const double index = std::trunc(static_cast<double>(values[i]));
      if (!(index < -end || index >= end)) continue;  // NaN becomes 0
      return InvalidArgument("input '{}': element {} is {}; it is an index along {}, from {} to {}",
                             bound.input, Position(tensor.shape(), static_cast<int64_t>(i)),
                             values[i], bound.indexed, -bound.bound, bound.bound - 1);
    }
    return absl::OkStatus();
  });
}

// For the indices of a Gather if its data has a known size; without the input's name.
std::optional<IndexBound> BoundOf(const Graph& graph, const Node& gather) {
  const Value& data = graph.values[static_cast<size_t>(gather.inputs[0])];
  if (!data.shape.has_rank()) return std::nullopt;
  const StatusOr<int> axis = NormalizeAxis(gather.attributes.Int("axis", 0), data.shape.rank());
  if (!axis.ok()) return std::nullopt;
  const Dim& size = data.shape[*axis];
  if (!size.known() || size.value() == 0) return std::nullopt;
  return IndexBound{.input = {},
                    .bound = size.value(),
                    .indexed = fmt::format("axis {} of '{}', of shape {}", *axis, data.name,
                                           data.shape.ToString())};
}

}  // namespace

std::vector<IndexBound> FindIndexBounds(const Graph& graph) {
  // By value: the input that contains all its elements.
  std::vector<const std::string*> inputs(graph.values.size());
  const auto at = [&](ValueId id) -> const std::string*& {
    return inputs[static_cast<size_t>(id)];
  };
  for (const ValueId input : graph.inputs) {
    at(input) = &graph.values[static_cast<size_t>(input)].name;
  }
  std::vector<IndexBound> bounds;
  for (const Node& node : graph.nodes) {
    if (KeepsEveryElement(*node.def)) {
      if (node.inputs[0] != kNoValue && node.outputs[0] != kNoValue) {
        at(node.outputs[0]) = at(node.inputs[0]);
      }
    } else if (node.def->domain.empty() && node.def->name == "Gather") {
      if (at(node.inputs[1]) == nullptr) continue;
      std::optional<IndexBound> bound = BoundOf(graph, node);
      if (!bound) continue;
      bound->input = *at(node.inputs[1]);
      bounds.push_back(*std::move(bound));
    }
  }
  return bounds;
}

Status CheckIndexBounds(const Signature& signature, const std::vector<IndexBound>& bounds,
                        const ValidatedRequest& request) {
  for (const IndexBound& bound : bounds) {
    for (size_t i = 0; i < signature.inputs.size(); ++i) {
      if (signature.inputs[i].name != bound.input) continue;
      CHAIRLIFT_RETURN_IF_ERROR(CheckIndexBound(signature, bound, request, i));
    }
  }
  return absl::OkStatus();
}

}  // namespace chairlift
