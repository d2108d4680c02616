#include "engine/requests/validate.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "base/closest.h"
#include "base/status.h"
#include "graph/batch_axis.h"
#include "tensor/datatype.h"

namespace chairlift {
namespace {

// The end of an error about a name that is not in the specs.
std::string KnownSpecs(const std::string& name, const std::vector<SymbolicSpec>& specs) {
  return KnownNames(name, NamesOf(specs, &SymbolicSpec::name));
}

// −1 if absent.
int SpecIndex(const std::vector<SymbolicSpec>& specs, const std::string& name) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

// Where a symbol got its number, for messages.
struct Binding {
  std::string_view symbol;
  int64_t value;
  int input;
  int axis;
};
using Bindings = absl::InlinedVector<Binding, 8>;  // models have one to four symbols

Status CheckTensor(const Signature& signature, int index, const Tensor& tensor, Bindings& symbols) {
  const SymbolicSpec& spec = signature.inputs[index];
  if (tensor.dtype() != spec.dtype) {
    const bool numbers = tensor.dtype() != DType::kBytes && spec.dtype != DType::kBytes;
    return InvalidArgument(
        "input '{}' has element type {}; the model takes {}: convert it first{}", spec.name,
        DatatypeName(tensor.dtype()), DatatypeName(spec.dtype),
        numbers ? fmt::format(", in NumPy with array.astype('{}')", DTypeName(spec.dtype)) : "");
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
      if (axis == 0 && want.value() == 1 && shape[0] > 1) {
        return InvalidArgument(
            "input '{}' has {} rows (shape {}); the model fixes them to 1, {}: send each row as a "
            "request of its own, or give the model an open first dimension "
            "(docs/guides/exporting.md)",
            spec.name, shape[0], shape.ToString(), spec.shape.ToString());
      }
      return InvalidArgument("dimension {} of input '{}' is {} (shape {}); the model takes {}, {}",
                             axis, spec.name, shape[axis], shape.ToString(), want.value(),
                             spec.shape.ToString());
    }
    if (!want.is_symbol()) continue;
    const auto bound = std::find_if(symbols.begin(), symbols.end(), [&](const Binding& binding) {
      return binding.symbol == want.symbol();
    });
    if (bound == symbols.end()) {
      symbols.push_back({want.symbol(), shape[axis], index, axis});
    } else if (bound->value != shape[axis]) {
      return InvalidArgument(
          "dimension {} of input '{}' is {}, but dimension {} of input '{}' is {}; both are '{}' "
          "and must be equal",
          axis, spec.name, shape[axis], bound->axis, signature.inputs[bound->input].name,
          bound->value, want.symbol());
    }
  }
  return absl::OkStatus();
}

// The rows of every input, or nothing if they differ.
std::optional<int64_t> RowsGiven(const std::vector<Tensor>& inputs) {
  const int64_t rows = inputs[0].shape()[0];
  for (const Tensor& input : inputs) {
    if (input.shape()[0] != rows) return std::nullopt;
  }
  return rows;
}

// Counts the request's rows, and decides whether it can share a batch at all.
Status FitRows(const Signature& signature, ValidatedRequest& validated) {
  int64_t most = 0;
  for (const Tensor& input : validated.inputs) most = std::max(most, input.shape()[0]);
  if (signature.max_rows > 0 && most > signature.max_rows) {
    return InvalidArgument("the request has {} rows; max_batch_size of the model is {}", most,
                           signature.max_rows);
  }
  validated.runs_alone = most > kMaxBatchRows || !RowsGiven(validated.inputs);
  validated.rows = static_cast<int32_t>(std::min(most, kMaxBatchRows));
  return absl::OkStatus();
}

StatusOr<std::vector<int>> WantedOutputs(const Signature& signature,
                                         const std::vector<std::string>& names) {
  std::vector<int> wanted;
  if (names.empty()) {
    for (size_t i = 0; i < signature.outputs.size(); ++i) wanted.push_back(static_cast<int>(i));
    return wanted;
  }
  for (const std::string& name : names) {
    const int index = SpecIndex(signature.outputs, name);
    if (index < 0) {
      return InvalidArgument("the model has no output '{}'{}", name,
                             KnownSpecs(name, signature.outputs));
    }
    if (std::find(wanted.begin(), wanted.end(), index) != wanted.end()) {
      return InvalidArgument("output '{}' is asked for twice", name);
    }
    wanted.push_back(index);
  }
  return wanted;
}

// use(values) with the mask's elements; false for types that a mask cannot have.
template <typename Use>
bool VisitMask(const Tensor& mask, Use use) {
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
      return false;
  }
}

// Leaves out the tokens that the mask marks as invalid (`trailing`: those after the last valid
// one). Sequences without a valid token are kept whole: there, every token attends to every other.
template <typename T>
void LeaveOut(std::span<const T> mask, bool trailing, ValidatedRequest& validated) {
  const auto length = static_cast<size_t>(validated.length);
  std::vector<bool> left_out(mask.size());
  bool any = false;
  for (size_t row = 0; row < validated.tokens.size(); ++row) {
    const std::span<const T> own = mask.subspan(row * length, length);
    size_t end = length;
    while (end > 0 && own[end - 1] == T{}) --end;
    if (end == 0) continue;
    for (size_t i = 0; i < length; ++i) {
      if (i < end && (trailing || own[i] != T{})) continue;
      left_out[row * length + i] = true;
      --validated.tokens[row];
      any = true;
    }
  }
  if (any) validated.left_out = std::move(left_out);
}

// The length of the request's sequences; nothing if no batch supports it.
std::optional<int64_t> SharedLength(const SequenceSignature& sequences,
                                    const ValidatedRequest& validated) {
  std::optional<int64_t> length;
  for (size_t i = 0; i < validated.inputs.size(); ++i) {
    if (!sequences.token_inputs[i]) continue;
    const int64_t own = validated.inputs[i].shape()[1];
    if (length.value_or(own) != own) return std::nullopt;
    length = own;
  }
  const bool fits = validated.rows > 0 && *length >= sequences.min_length &&
                    (sequences.max_length == 0 || *length <= sequences.max_length) &&
                    *length <= kMaxBatchRows / validated.rows;
  return fits ? length : std::nullopt;
}

// Whether every sequence has a valid token: in one without, all tokens are treated as valid.
template <typename T>
bool EveryRowCounts(std::span<const T> mask, int64_t length) {
  for (; !mask.empty(); mask = mask.subspan(static_cast<size_t>(length))) {
    const std::span<const T> row = mask.first(static_cast<size_t>(length));
    if (std::all_of(row.begin(), row.end(), [](T value) { return value == T{}; })) return false;
  }
  return true;
}

bool IsZerosAndOnes(const Tensor& marks) {
  return VisitMask(marks, [](auto values) {
    using T = typename decltype(values)::value_type;
    return std::all_of(values.begin(), values.end(),
                       [](T value) { return value == T{} || value == T{1}; });
  });
}

// Whether the first token of each sequence counts, or all do.
bool Count(const Tensor& marks, bool all) {
  const auto length = static_cast<size_t>(marks.shape()[1]);
  return VisitMask(marks, [&](auto values) {
    using T = typename decltype(values)::value_type;
    for (size_t i = 0; i < values.size(); i += all ? 1 : length) {
      if (values[i] == T{}) return false;
    }
    return true;
  });
}

// Which tokens are computed. False where nothing is proved of such a mask: where it has elements
// other than 0 and 1, or where padding would count as much as its tokens.
bool FitMask(const SequenceSignature& sequences, ValidatedRequest& validated) {
  for (const int input : sequences.marks) {
    if (!IsZerosAndOnes(validated.inputs[static_cast<size_t>(input)])) return false;
  }
  for (const bool all : {false, true}) {
    for (const int input : all ? sequences.all_marks : sequences.first_marks) {
      if (!Count(validated.inputs[static_cast<size_t>(input)], all)) return false;
    }
  }
  if (sequences.mask < 0) return true;
  const Tensor& mask = validated.inputs[static_cast<size_t>(sequences.mask)];
  if (!IsZerosAndOnes(mask)) return false;
  bool only_sequences = true;
  for (const int output : validated.outputs) {
    only_sequences &= !sequences.token_outputs[static_cast<size_t>(output)];
  }
  return VisitMask(mask, [&](auto values) {
    using T = typename decltype(values)::value_type;
    const std::span<const T> marks(values);
    if (sequences.padded) return EveryRowCounts(marks, validated.length);
    if (only_sequences && sequences.sequences_ignore_masked) {
      LeaveOut(marks, false, validated);
    } else if (only_sequences && sequences.sequences_ignore_trailing) {
      LeaveOut(marks, true, validated);
    }
    return true;
  });
}

void FitSequences(const SequenceSignature& sequences, ValidatedRequest& validated) {
  if (validated.runs_alone) return;
  const std::optional<int64_t> length = SharedLength(sequences, validated);
  validated.runs_alone = !length;
  if (!length) return;
  validated.length = *length;
  if (!sequences.padded) {
    validated.tokens.assign(static_cast<size_t>(validated.rows),
                            static_cast<int32_t>(validated.length));
  }
  if (!FitMask(sequences, validated)) {
    validated.runs_alone = true;
    validated.tokens.clear();
  }
  validated.num_tokens = std::accumulate(validated.tokens.begin(), validated.tokens.end(), 0);
}

// The load of a request that runs alone, as its scheduler counts: tokens, or rows and a length.
void CountAlone(const SequenceSignature& sequences, ValidatedRequest& validated) {
  int64_t tokens = 1, length = 1;
  for (size_t i = 0; i < validated.inputs.size(); ++i) {
    if (!sequences.token_inputs[i]) continue;
    const Shape& shape = validated.inputs[i].shape();
    tokens = std::max(tokens, std::min(shape.NumElements(0, 2), kMaxBatchRows));
    length = std::max(length, std::min(shape[1], kMaxBatchRows));
  }
  validated.length = length;
  validated.room = static_cast<int32_t>(sequences.padded ? 1 : tokens);
}

}  // namespace

StatusOr<ValidatedRequest> Validate(const Signature& signature, const InferRequest& request) {
  ValidatedRequest validated;
  validated.inputs.resize(signature.inputs.size());
  for (const NamedTensor& input : request.inputs) {
    const int index = SpecIndex(signature.inputs, input.name);
    if (index < 0) {
      return InvalidArgument("the model has no input '{}'{}", input.name,
                             KnownSpecs(input.name, signature.inputs));
    }
    if (validated.inputs[index].present()) {
      return InvalidArgument("input '{}' is given twice", input.name);
    }
    if (!input.tensor.present()) return InvalidArgument("input '{}' has no data", input.name);
    validated.inputs[index] = input.tensor;
  }
  Bindings symbols;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    if (!validated.inputs[i].present()) {
      return InvalidArgument("input '{}' is missing; the model's inputs are: '{}'",
                             signature.inputs[i].name,
                             fmt::join(NamesOf(signature.inputs, &SymbolicSpec::name), "', '"));
    }
    CHAIRLIFT_RETURN_IF_ERROR(
        CheckTensor(signature, static_cast<int>(i), validated.inputs[i], symbols));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(validated.outputs, WantedOutputs(signature, request.outputs));
  if (!signature.batches) return validated;

  CHAIRLIFT_RETURN_IF_ERROR(FitRows(signature, validated));
  if (signature.sequences) {
    FitSequences(*signature.sequences, validated);
    if (validated.runs_alone) CountAlone(*signature.sequences, validated);
    return validated;
  }
  for (const Tensor& input : validated.inputs) {
    validated.key.push_back(input.shape().rank());
    validated.key.insert(validated.key.end(), input.shape().begin() + 1, input.shape().end());
  }
  return validated;
}

}  // namespace chairlift
