#include "engine/signature.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/status.h"
#include "graph/batch_axis.h"

namespace chairlift {
namespace {

std::string Names(const std::vector<SymbolicSpec>& specs) {
  std::string names;
  for (const SymbolicSpec& spec : specs) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", spec.name);
  }
  return names.empty() ? "none" : names;
}

// −1 where absent.
int IndexOf(const std::vector<SymbolicSpec>& specs, const std::string& name) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

// Where a symbol got its number, for messages.
struct Binding {
  int64_t value;
  int input;
  int axis;
};

Status CheckTensor(const Signature& signature, int index, const Tensor& tensor,
                   std::map<std::string, Binding>& symbols) {
  const SymbolicSpec& spec = signature.inputs[index];
  if (!tensor.present()) return InvalidArgument("input '{}' has no data", spec.name);
  if (tensor.dtype() != spec.dtype) {
    return InvalidArgument("input '{}' has element type {}; the model takes {}", spec.name,
                           DTypeName(tensor.dtype()), DTypeName(spec.dtype));
  }
  if (!spec.shape.has_rank()) return absl::OkStatus();
  const Shape& shape = tensor.shape();
  if (shape.rank() != spec.shape.rank()) {
    return InvalidArgument("input '{}' has shape {}, of rank {}; the model takes {}, of rank {}",
                           spec.name, shape.ToString(), shape.rank(), spec.shape.ToString(),
                           spec.shape.rank());
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const Dim& want = spec.shape[axis];
    if (want.known() && want.value() != shape[axis]) {
      return InvalidArgument("dimension {} of input '{}' is {} (shape {}); the model takes {}, {}",
                             axis, spec.name, shape[axis], shape.ToString(), want.value(),
                             spec.shape.ToString());
    }
    if (!want.is_symbol()) continue;
    const auto [it, fresh] = symbols.emplace(want.symbol(), Binding{shape[axis], index, axis});
    if (!fresh && it->second.value != shape[axis]) {
      return InvalidArgument(
          "dimension {} of input '{}' is {}, but dimension {} of input '{}' is {}; both are '{}' "
          "and must be equal",
          axis, spec.name, shape[axis], it->second.axis, signature.inputs[it->second.input].name,
          it->second.value, want.symbol());
    }
  }
  return absl::OkStatus();
}

// All inputs must bring equally many rows, whether or not the model's symbols say so.
StatusOr<int32_t> CountRows(const Signature& signature, const std::vector<Tensor>& inputs) {
  const int64_t rows = inputs[0].shape()[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].shape()[0] != rows) {
      return InvalidArgument(
          "input '{}' brings {} rows (dimension 0), but input '{}' brings {}; they must be equal",
          signature.inputs[i].name, inputs[i].shape()[0], signature.inputs[0].name, rows);
    }
  }
  if (signature.max_rows > 0 && rows > signature.max_rows) {
    return InvalidArgument("the request brings {} rows; max_batch_size of the model is {}", rows,
                           signature.max_rows);
  }
  if (rows > kMaxBatchRows) {
    return InvalidArgument("the request brings {} rows; at most {} are possible", rows,
                           kMaxBatchRows);
  }
  return static_cast<int32_t>(rows);
}

StatusOr<std::vector<int>> WantedOutputs(const Signature& signature,
                                         const std::vector<std::string>& names) {
  std::vector<int> wanted;
  if (names.empty()) {
    for (size_t i = 0; i < signature.outputs.size(); ++i) wanted.push_back(static_cast<int>(i));
    return wanted;
  }
  for (const std::string& name : names) {
    const int index = IndexOf(signature.outputs, name);
    if (index < 0) {
      return InvalidArgument("the model has no output '{}'; its outputs are: {}", name,
                             Names(signature.outputs));
    }
    if (std::find(wanted.begin(), wanted.end(), index) != wanted.end()) {
      return InvalidArgument("output '{}' is asked for twice", name);
    }
    wanted.push_back(index);
  }
  return wanted;
}

// Calls use(values) with the mask's elements.
template <typename Use>
Status VisitMask(const Tensor& mask, Use use) {
  switch (mask.dtype()) {
    case DType::kInt64:
      return use(mask.values<int64_t>());
    case DType::kInt32:
      return use(mask.values<int32_t>());
    case DType::kBool:
      return use(mask.values<bool>());
    case DType::kFloat:
      return use(mask.values<float>());
    case DType::kUInt8:
      return use(mask.values<uint8_t>());
    case DType::kInt8:
      return use(mask.values<int8_t>());
    default:
      return InvalidArgument("a mask of {} is not supported", DTypeName(mask.dtype()));
  }
}

// Leaves out the tokens that the mask does not count (`trailing`: those behind the last one that it
// counts), but for sequences of which it counts none: there, every token sees every other.
template <typename T>
void LeaveOut(std::span<const T> mask, bool trailing, FittingRequest& fitting) {
  const auto length = static_cast<size_t>(fitting.length);
  std::vector<bool> left_out(mask.size());
  bool any = false;
  for (size_t row = 0; row < fitting.tokens.size(); ++row) {
    const std::span<const T> own = mask.subspan(row * length, length);
    size_t end = length;
    while (end > 0 && own[end - 1] == T{}) --end;
    if (end == 0) continue;
    for (size_t i = 0; i < length; ++i) {
      if (i < end && (trailing || own[i] != T{})) continue;
      left_out[row * length + i] = true;
      --fitting.tokens[row];
      any = true;
    }
  }
  if (any) fitting.left_out = std::move(left_out);
}

Status FitSequences(const Signature& signature, FittingRequest& fitting) {
  const SequenceSignature& sequences = *signature.sequences;
  int first = -1;
  for (size_t i = 0; i < fitting.inputs.size(); ++i) {
    if (!sequences.token_inputs[i]) continue;
    const int64_t length = fitting.inputs[i].shape()[1];
    if (first < 0) {
      first = static_cast<int>(i);
      fitting.length = length;
    } else if (length != fitting.length) {
      return InvalidArgument(
          "input '{}' brings sequences of {} tokens (dimension 1), but input '{}' of {}; they must "
          "be equal",
          signature.inputs[i].name, length, signature.inputs[static_cast<size_t>(first)].name,
          fitting.length);
    }
  }
  const std::string& name = signature.inputs[static_cast<size_t>(first)].name;
  if (fitting.length < sequences.min_length) {
    return InvalidArgument("input '{}' brings sequences of {} tokens; the model takes {} at least",
                           name, fitting.length, sequences.min_length);
  }
  if (fitting.rows == 0) {
    return InvalidArgument("input '{}' has shape {}: no sequence", name,
                           fitting.inputs[static_cast<size_t>(first)].shape().ToString());
  }
  if (sequences.max_length > 0 && fitting.length > sequences.max_length) {
    return InvalidArgument("input '{}' brings sequences of {} tokens; the model takes {} at most",
                           name, fitting.length, sequences.max_length);
  }
  if (fitting.length > kMaxBatchRows / fitting.rows) {
    return InvalidArgument("the request brings {} tokens; at most {} are possible",
                           fitting.rows * fitting.length, kMaxBatchRows);
  }
  fitting.runs_alone =
      sequences.max_shared_length > 0 && fitting.length > sequences.max_shared_length;
  if (sequences.padded) return absl::OkStatus();
  fitting.tokens.assign(static_cast<size_t>(fitting.rows), static_cast<int32_t>(fitting.length));
  if (sequences.mask < 0 || fitting.runs_alone) return absl::OkStatus();
  bool only_sequences = true;
  for (const int output : fitting.outputs) {
    only_sequences &= !sequences.token_outputs[static_cast<size_t>(output)];
  }
  return VisitMask(fitting.inputs[static_cast<size_t>(sequences.mask)], [&](auto mask) -> Status {
    using T = typename decltype(mask)::value_type;
    for (const T value : mask) {
      if (value != T{} && value != T{1}) {
        return InvalidArgument("input '{}' has elements other than 0 and 1",
                               signature.inputs[static_cast<size_t>(sequences.mask)].name);
      }
    }
    if (only_sequences && sequences.sequences_ignore_masked) {
      LeaveOut(std::span<const T>(mask), false, fitting);
    } else if (only_sequences && sequences.sequences_ignore_trailing) {
      LeaveOut(std::span<const T>(mask), true, fitting);
    }
    return absl::OkStatus();
  });
}

}  // namespace

StatusOr<FittingRequest> Fit(const Signature& signature, const InferRequest& request) {
  FittingRequest fitting;
  fitting.inputs.resize(signature.inputs.size());
  for (const NamedTensor& input : request.inputs) {
    const int index = IndexOf(signature.inputs, input.name);
    if (index < 0) {
      return InvalidArgument("the model has no input '{}'; its inputs are: {}", input.name,
                             Names(signature.inputs));
    }
    if (fitting.inputs[index].present()) {
      return InvalidArgument("input '{}' is given twice", input.name);
    }
    if (!input.tensor.present()) return InvalidArgument("input '{}' has no data", input.name);
    fitting.inputs[index] = input.tensor;
  }
  std::map<std::string, Binding> symbols;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (!fitting.inputs[i].present()) {
      return InvalidArgument("input '{}' is missing; the model's inputs are: {}",
                             signature.inputs[i].name, Names(signature.inputs));
    }
    CHAIRLIFT_RETURN_IF_ERROR(
        CheckTensor(signature, static_cast<int>(i), fitting.inputs[i], symbols));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(fitting.outputs, WantedOutputs(signature, request.outputs));
  if (!signature.batches) return fitting;

  CHAIRLIFT_ASSIGN_OR_RETURN(fitting.rows, CountRows(signature, fitting.inputs));
  if (signature.sequences) {
    CHAIRLIFT_RETURN_IF_ERROR(FitSequences(signature, fitting));
    fitting.num_tokens = std::accumulate(fitting.tokens.begin(), fitting.tokens.end(), 0);
    return fitting;
  }
  for (const Tensor& input : fitting.inputs) {
    fitting.key.push_back(input.shape().rank());
    fitting.key.insert(fitting.key.end(), input.shape().begin() + 1, input.shape().end());
  }
  return fitting;
}

}  // namespace chairlift
