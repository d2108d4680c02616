#include "engine/repository/triton/triton_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/regular_file.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLabelBytes = size_t{16} << 20;  // of all outputs

using Sizes = google::protobuf::RepeatedField<int64_t>;

StatusOr<std::vector<int64_t>> ReadDims(const Sizes& dims, int64_t least, const std::string& what) {
  for (const int64_t dim : dims) {
    if (dim == -1 || dim >= least) continue;
    return InvalidArgument("{} has a dimension {}; it must be -1 (any size) or {} or more", what,
                           dim, least);
  }
  return std::vector<int64_t>(dims.begin(), dims.end());
}

template <typename From>
StatusOr<DeclaredPort> ReadPort(const From& from, const char* what) {
  if (from.name().empty()) return InvalidArgument("an {} has no name", what);
  const std::string named = fmt::format("{} '{}'", what, from.name());
  DeclaredPort port{.name = from.name(), .dtype = TypeOf(from.data_type())};
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<int64_t> dims, ReadDims(from.dims(), 1, named + ": dims"));
  if (!dims.empty()) port.dims = std::move(dims);
  if (from.has_reshape()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(port.reshape,
                               ReadDims(from.reshape().shape(), 1, named + ": reshape"));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckReshape(port, what));
  return port;
}

Status ReadInputs(const triton::ModelConfig& from, DeclaredPorts& ports) {
  for (const triton::ModelInput& input : from.input()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(DeclaredPort port, ReadPort(input, "input"));
    if (input.allow_ragged_batch()) {
      if (from.max_batch_size() == 0 || !port.dims || port.reshape) {
        return InvalidArgument(
            "input '{}': allow_ragged_batch needs a max_batch_size above 0, dims, and no reshape",
            input.name());
      }
      port.ragged = true;
    }
    ports.inputs.push_back(std::move(port));
  }
  return absl::OkStatus();
}

using ComputedKind = ComputedInput::Kind;

ComputedKind KindOf(triton::BatchInput::Kind kind) {
  switch (kind) {
    case triton::BatchInput::BATCH_ELEMENT_COUNT:
    case triton::BatchInput::BATCH_ACCUMULATED_ELEMENT_COUNT:  // for one request, which is a batch
      return ComputedKind::kElements;
    case triton::BatchInput::BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
      return ComputedKind::kElementsFromZero;
    case triton::BatchInput::BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
      return ComputedKind::kElementsAsShape;
    case triton::BatchInput::BATCH_ITEM_SHAPE:
      return ComputedKind::kItemShapes;
    case triton::BatchInput::BATCH_ITEM_SHAPE_FLATTEN:
      return ComputedKind::kItemShapesInOne;
  }
  return ComputedKind::kElements;
}

Status ReadComputed(const triton::ModelConfig& from, DeclaredPorts& ports) {
  const bool any = from.batch_input_size() > 0 || from.batch_output_size() > 0;
  if (any && from.max_batch_size() == 0) {
    return InvalidArgument("batch_input and batch_output need a max_batch_size above 0");
  }
  for (const triton::BatchInput& input : from.batch_input()) {
    if (input.source_input_size() != 1 || input.target_name_size() == 0) {
      return InvalidArgument("a batch_input must have one source_input and a target_name");
    }
    for (const std::string& target : input.target_name()) {
      ports.computed.push_back({.kind = KindOf(input.kind()),
                                .name = target,
                                .source = input.source_input(0),
                                .dtype = TypeOf(input.data_type())});
    }
  }
  for (const triton::BatchOutput& output : from.batch_output()) {
    if (output.source_input_size() != 1 || output.target_name_size() == 0) {
      return InvalidArgument("a batch_output must have one source_input and a target_name");
    }
    for (const std::string& target : output.target_name()) {
      ports.shaped.push_back({.name = target, .source = output.source_input(0)});
    }
  }
  return absl::OkStatus();
}

// Subtracts what it holds from `bytes_left`.
StatusOr<std::vector<std::string>> ReadLabels(const fs::path& folder, const std::string& name,
                                              size_t& bytes_left) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path file, FileInside(folder, name));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(file, bytes_left + 1));
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const size_t held = text.size() + lines * sizeof(std::string);
  if (held > bytes_left) {
    return InvalidArgument("{} is too large: the labels of a model may take {} bytes together",
                           file.string(), kMaxLabelBytes);
  }
  bytes_left -= held;
  std::vector<std::string> labels;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t last = end > at && text[end - 1] == '\r' ? end - 1 : end;
    labels.push_back(text.substr(at, last - at));
    at = end + 1;
  }
  return labels;
}

// Scalars for false and true.
Status ReadFalseTrue(const triton::ModelSequenceBatching::Control& from, SequenceControl& control) {
  const auto set = [&]<typename T, typename Values>(const Values& values) {
    control.dtype = DTypeOf<T>::kValue;
    control.off = Tensor::Scalar<T>(static_cast<T>(values[0]));
    control.on = Tensor::Scalar<T>(static_cast<T>(values[1]));
  };
  const int ints = from.int32_false_true_size(), floats = from.fp32_false_true_size(),
            bools = from.bool_false_true_size();
  if (ints + floats + bools != 2 || ints == 1 || floats == 1) {
    return InvalidArgument(
        "control_input '{}' must have two numbers, for false and true, in one of int32_false_true, "
        "fp32_false_true and bool_false_true",
        control.input);
  }
  if (ints == 2) set.operator()<int32_t>(from.int32_false_true());
  if (floats == 2) set.operator()<float>(from.fp32_false_true());
  if (bools == 2) set.operator()<bool>(from.bool_false_true());
  return absl::OkStatus();
}

using ControlKind = SequenceControl::Kind;

Status ReadControls(const triton::ModelSequenceBatching& from, RequestRules& rules) {
  using Control = triton::ModelSequenceBatching::Control;
  for (const triton::ModelSequenceBatching::ControlInput& input : from.control_input()) {
    if (input.name().empty() || input.control_size() != 1) {
      return InvalidArgument("control_input '{}' must have a name and one control", input.name());
    }
    const Control& given = input.control(0);
    SequenceControl control{.input = input.name()};
    switch (given.kind()) {
      case Control::CONTROL_SEQUENCE_START:
        control.kind = ControlKind::kStart;
        break;
      case Control::CONTROL_SEQUENCE_READY:
        control.kind = ControlKind::kReady;
        break;
      case Control::CONTROL_SEQUENCE_END:
        control.kind = ControlKind::kEnd;
        break;
      case Control::CONTROL_SEQUENCE_CORRID:
        control.kind = ControlKind::kId;
        break;
    }
    if (control.kind == ControlKind::kId) {
      control.dtype = TypeOf(given.data_type());
      const bool whole = control.dtype == DType::kInt32 || control.dtype == DType::kInt64 ||
                         control.dtype == DType::kUInt32 || control.dtype == DType::kUInt64;
      if (!whole) {
        return Unimplemented(
            "control_input '{}' has data_type {}; a sequence's id can be TYPE_INT32, TYPE_INT64, "
            "TYPE_UINT32 or TYPE_UINT64",
            control.input, triton::DataType_Name(given.data_type()));
      }
    } else {
      CHAIRLIFT_RETURN_IF_ERROR(ReadFalseTrue(given, control));
    }
    for (const SequenceControl& other : rules.controls) {
      if (other.input == control.input || other.kind == control.kind) {
        return InvalidArgument("control_input '{}' and '{}' are of one name or kind", other.input,
                               control.input);
      }
    }
    rules.controls.push_back(std::move(control));
  }
  return absl::OkStatus();
}

StatusOr<Tensor> ReadInitial(const triton::ModelSequenceBatching::InitialState& from,
                             const fs::path& folder, int64_t& bytes_left) {
  Shape shape;
  for (const int64_t dim : from.dims()) {
    if (dim < 0) return InvalidArgument("its dims must be 0 or more; one is {}", dim);
    shape.Append(dim);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor tensor, ZeroTensor(from.data_type(), shape, bytes_left));
  if (from.has_data_file()) {
    CHAIRLIFT_RETURN_IF_ERROR(FillFrom(folder / "initial_state", from.data_file(), tensor));
  } else if (!from.zero_data()) {
    return InvalidArgument("it must have zero_data: true, or a data_file");
  }
  return tensor;
}

Status ReadStates(const triton::ModelConfig& config, const fs::path& folder, FolderConfig& read) {
  const triton::ModelSequenceBatching& from = config.sequence_batching();
  int64_t bytes_left = kMaxTensorsBytes;
  for (const triton::ModelSequenceBatching::State& state : from.state()) {
    const DType type = TypeOf(state.data_type());
    CHAIRLIFT_ASSIGN_OR_RETURN(
        std::vector<int64_t> dims,
        ReadDims(state.dims(), 0, fmt::format("state '{}': dims", state.input_name())));
    const auto declare = [&](std::vector<DeclaredPort>& ports, const std::string& name) {
      const bool known = std::any_of(ports.begin(), ports.end(),
                                     [&](const DeclaredPort& port) { return port.name == name; });
      if (known) return;
      DeclaredPort& port = ports.emplace_back();
      port.name = name;
      port.dtype = type;
      if (!dims.empty()) port.dims = dims;
    };
    for (const triton::ModelOutput& output : config.output()) {
      if (output.name() == state.output_name()) read.rules.shown_states.insert(output.name());
    }
    declare(read.ports.inputs, state.input_name());
    declare(read.ports.outputs, state.output_name());
    if (state.initial_state_size() == 0) continue;
    const auto in_state = [&](const Status& status) {
      return Annotate(status, fmt::format("initial_state of '{}'", state.input_name()));
    };
    if (state.initial_state_size() > 1) {
      return in_state(InvalidArgument("it is given {} times", state.initial_state_size()));
    }
    StatusOr<Tensor> initial = ReadInitial(state.initial_state(0), folder, bytes_left);
    if (!initial.ok()) return in_state(initial.status());
    const Shape& shape = initial->shape();
    bool fits = dims.empty() || static_cast<int>(dims.size()) == shape.rank();
    for (size_t axis = 0; fits && axis < dims.size(); ++axis) {
      fits = dims[axis] < 0 || dims[axis] == shape[static_cast<int>(axis)];
    }
    if (!fits) {
      return in_state(InvalidArgument("its dims are {}, the state's [{}]", shape.ToString(),
                                      fmt::join(dims, ",")));
    }
    read.rules.initial_state.emplace(state.input_name(), *std::move(initial));
  }
  return absl::OkStatus();
}

}  // namespace

DType TypeOf(triton::DataType type) {
  static constexpr DType kTypes[] = {
      DType::kUndefined, DType::kBool,  DType::kUInt8,  DType::kUInt16, DType::kUInt32,
      DType::kUInt64,    DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
      DType::kFloat16,   DType::kFloat, DType::kDouble, DType::kBytes,  DType::kBFloat16};
  return kTypes[static_cast<int>(type)];
}

StatusOr<Tensor> ZeroTensor(triton::DataType type, const Shape& shape, int64_t& bytes_left) {
  const DType dtype = TypeOf(type);
  if (dtype == DType::kUndefined || dtype == DType::kBytes) {
    return InvalidArgument("its data_type is not supported; models take numbers only");
  }
  CHAIRLIFT_RETURN_IF_ERROR(shape.Checked(DTypeSize(dtype), bytes_left).status());
  Tensor tensor = Tensor::Allocate(dtype, shape);
  bytes_left -= static_cast<int64_t>(tensor.byte_size());
  std::fill_n(static_cast<std::byte*>(tensor.raw()), tensor.byte_size(), std::byte{0});
  return tensor;
}

Status FillFrom(const fs::path& folder, const std::string& name, Tensor& tensor) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path file, FileInside(folder, name));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string bytes,
                             ReadRegularFile(file, tensor.byte_size() + 1));
  if (bytes.size() != tensor.byte_size()) {
    return InvalidArgument("{} must have the {} bytes of its tensor", file.string(),
                           tensor.byte_size());
  }
  std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

Status ReadTensors(const triton::ModelConfig& from, const fs::path& folder, FolderConfig& read) {
  DeclaredPorts& ports = read.ports;
  RequestRules& rules = read.rules;
  ports.batch = from.max_batch_size() > 0;
  // If a file omits inputs or outputs, the model determines whether there is a batch.
  if (ports.batch || (from.input_size() > 0 && from.output_size() > 0)) {
    rules.max_rows = from.max_batch_size();
  }
  CHAIRLIFT_RETURN_IF_ERROR(ReadInputs(from, ports));
  size_t label_bytes_left = kMaxLabelBytes;
  for (const triton::ModelOutput& output : from.output()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(DeclaredPort port, ReadPort(output, "output"));
    if (port.dims && !port.reshape) rules.output_dims.emplace(port.name, *port.dims);
    ports.outputs.push_back(std::move(port));
    if (output.label_filename().empty()) continue;
    StatusOr<std::vector<std::string>> labels =
        ReadLabels(folder, output.label_filename(), label_bytes_left);
    if (!labels.ok()) {
      return Annotate(labels.status(), fmt::format("label_filename of output '{}'", output.name()));
    }
    rules.labels.emplace(output.name(), *std::move(labels));
  }
  ports.all_inputs = from.input_size() > 0;
  ports.all_outputs = from.output_size() > 0;
  CHAIRLIFT_RETURN_IF_ERROR(ReadComputed(from, ports));
  for (const ShapedOutput& output : ports.shaped) rules.output_dims.erase(output.name);
  if (from.has_sequence_batching()) {
    rules.sequences_only = true;
    CHAIRLIFT_RETURN_IF_ERROR(ReadControls(from.sequence_batching(), rules));
    for (const SequenceControl& control : rules.controls) ports.filled.insert(control.input);
    CHAIRLIFT_RETURN_IF_ERROR(ReadStates(from, folder, read));
  }
  return absl::OkStatus();
}

}  // namespace chairlift
