#include "cli/inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "base/closest.h"
#include "base/status.h"
#include "cli/flags.h"
#include "tensor/dispatch_all.h"
#include "tensor/npy.h"

namespace chairlift {
namespace {

StatusOr<std::pair<std::string, std::string>> SplitNamed(const std::string& argument,
                                                         const char* form) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size()) {
    return Usage(InvalidArgument("'{}' has no name; write it as {}", argument, form));
  }
  return std::pair{argument.substr(0, equals), argument.substr(equals + 1)};
}

StatusOr<std::vector<int64_t>> ParseDims(const std::string& text) {
  std::vector<int64_t> dims;
  std::string_view left = text;
  while (true) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), dim);
    left.remove_prefix(static_cast<size_t>(end - left.data()));
    const bool separated = left.empty() || left[0] == 'x' || left[0] == ',';
    if (error != std::errc() || dim < 0 || !separated) {
      return Usage(InvalidArgument("'{}' is not a shape; write it as 1x3x224x224", text));
    }
    dims.push_back(dim);
    if (left.empty()) return dims;
    left.remove_prefix(1);
  }
}

// The usual value of inputs with this name; absent if there is none.
std::optional<int> UsualValue(std::string_view name) {
  const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
  if (has("mask")) return 1;
  // A single text has one segment: segment tables have one or two rows.
  if (has("token_type") || has("segment")) return 0;
  if (has("children")) return -1;  // no child: a leaf
  if (name == "max_tokens") return 8;
  if (name == "sr" || has("sample_rate") || has("sampling_rate")) return 16000;
  return std::nullopt;
}

template <typename T>
void Fill(Tensor& tensor, std::optional<int> usual, std::mt19937_64& random) {
  T* data = tensor.data<T>();
  if (usual || std::is_same_v<T, bool>) {
    std::fill(data, data + tensor.size(), static_cast<T>(usual.value_or(1)));
  } else if constexpr (std::is_integral_v<T>) {
    // A wide integer may be an index into a table, which may have only two rows.
    constexpr unsigned kValues = sizeof(T) < 4 ? 100 : 2;
    for (int64_t i = 0; i < tensor.size(); ++i) data[i] = static_cast<T>(random() % kValues);
  } else {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < tensor.size(); ++i) data[i] = static_cast<T>(normal(random));
  }
}

// The inputs of generated requests. Other inputs of a model that generates are optional, and would
// have to fit each other.
std::vector<TensorSpec> Brought(const std::vector<TensorSpec>& specs) {
  if (!AreOfGeneration(specs)) return specs;
  std::vector<TensorSpec> brought = {specs[0]};  // the prompt, or the source
  for (const TensorSpec& spec : specs) {
    if (spec.name == "max_tokens" || spec.name == "ignore_eos") brought.push_back(spec);
    // One token: not every model's files set the start token.
    if (spec.name == "decoder_input_ids") brought.push_back({spec.name, spec.dtype, {1, 1}});
  }
  return brought;
}

}  // namespace

StatusOr<std::vector<NamedTensor>> ReadInputs(const std::vector<std::string>& arguments) {
  std::vector<NamedTensor> inputs;
  for (const std::string& argument : arguments) {
    CHAIRLIFT_ASSIGN_OR_RETURN(auto named, SplitNamed(argument, "NAME=FILE.npy"));
    StatusOr<Tensor> tensor = ReadNpy(named.second);
    if (!tensor.ok()) {
      return Status(tensor.status().code(),
                    fmt::format("--input {}: {}", named.first, Message(tensor.status())));
    }
    inputs.push_back({std::move(named.first), *std::move(tensor)});
  }
  return inputs;
}

Status ParseShapes(const std::vector<std::string>& arguments, InputShapes* shapes) {
  for (const std::string& argument : arguments) {
    CHAIRLIFT_ASSIGN_OR_RETURN(auto named, SplitNamed(argument, "NAME=1x3x224x224"));
    CHAIRLIFT_ASSIGN_OR_RETURN(shapes->by_name[named.first], ParseDims(named.second));
  }
  return absl::OkStatus();
}

Status CheckShapeNames(const std::vector<TensorSpec>& specs, const InputShapes& shapes) {
  const std::vector<std::string> names = NamesOf(specs, &TensorSpec::name);
  for (const auto& shape : shapes.by_name) {
    const std::string& name = shape.first;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return InvalidArgument("no input is named '{}'{}", name, KnownNames(name, names));
  }
  return absl::OkStatus();
}

bool VariesInLength(const std::vector<TensorSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(), [](const TensorSpec& spec) {
    return std::any_of(spec.shape.begin() + (spec.shape.empty() ? 0 : 1), spec.shape.end(),
                       [](int64_t d) { return d < 0; });
  });
}

StatusOr<Shape> ResolveShape(const TensorSpec& spec, const InputShapes& shapes) {
  Shape shape;
  if (auto it = shapes.by_name.find(spec.name); it != shapes.by_name.end()) {
    shape = Shape(std::span<const int64_t>(it->second));
  } else {
    for (size_t i = 0; i < spec.shape.size(); ++i) {
      const bool of_state = shapes.fixed_first_is_state && spec.shape[0] >= 0;
      const int64_t open = i == 0 || of_state ? shapes.batch : shapes.length;
      shape.Append(spec.shape[i] < 0 ? open : spec.shape[i]);
    }
  }
  const auto checked = shape.Checked(DTypeSize(spec.dtype));
  if (!checked.ok()) return Annotate(checked.status(), fmt::format("input '{}'", spec.name));
  return shape;
}

bool AreOfGeneration(const std::vector<TensorSpec>& specs) {
  const auto has = [&](std::string_view name) {
    return std::any_of(specs.begin(), specs.end(),
                       [&](const TensorSpec& spec) { return spec.name == name; });
  };
  return has("max_tokens") && has("ignore_eos") && has("stop_token_ids");
}

StatusOr<std::string> DescribeInputs(const std::vector<TensorSpec>& specs,
                                     const InputShapes& shapes) {
  std::string text;
  for (const TensorSpec& spec : Brought(specs)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ResolveShape(spec, shapes));
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", spec.name, DTypeName(spec.dtype),
                        shape.ToString());
  }
  return text;
}

StatusOr<InputShapes> FindShapes(const std::vector<TensorSpec>& specs, const InputShapes& shapes,
                                 std::span<const int64_t> lengths,
                                 const std::function<Status(const InputShapes&)>& attempt) {
  // A length in several dimensions makes large inputs.
  constexpr int64_t kMaxElements = int64_t{1} << 24;
  const auto small = [&](const InputShapes& candidate) {
    return std::all_of(specs.begin(), specs.end(), [&](const TensorSpec& spec) {
      const auto shape = ResolveShape(spec, candidate);
      return shape.ok() && shape->NumElements() <= kMaxElements;
    });
  };
  std::vector<int64_t> all = {shapes.length};
  all.insert(all.end(), lengths.begin(), lengths.end());
  std::set<std::string> tried;
  Status first;
  for (const int64_t length : all) {
    for (const bool fixed_first_is_state : {false, true}) {
      InputShapes candidate = shapes;
      candidate.length = length;
      candidate.fixed_first_is_state = fixed_first_is_state;
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, DescribeInputs(specs, candidate));
      if (!tried.insert(text).second || (tried.size() > 1 && !small(candidate))) continue;
      const Status status = attempt(candidate);
      if (status.ok()) return candidate;
      if (!absl::IsInvalidArgument(status)) return status;
      if (first.ok()) first = Annotate(status, text);
    }
  }
  if (specs.empty()) return first;
  // The general form, because the current shape was refused.
  std::vector<std::string> form;
  for (const int64_t dim : specs[0].shape) {
    form.push_back(dim >= 0 ? std::to_string(dim) : form.empty() ? "BATCH" : "LENGTH");
  }
  return InvalidArgument(
      "the model refuses generated inputs: {}; set other shapes, as --shape {}={}", Message(first),
      specs[0].name, fmt::join(form, "x"));
}

StatusOr<std::vector<NamedTensor>> MakeInputs(const std::vector<TensorSpec>& specs,
                                              const InputShapes& shapes, std::mt19937_64& random) {
  std::vector<NamedTensor> inputs;
  for (const TensorSpec& spec : Brought(specs)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ResolveShape(spec, shapes));
    Tensor tensor = Tensor::Allocate(spec.dtype, shape);
    if (spec.dtype == DType::kBytes) {  // empty strings
      inputs.push_back({spec.name, std::move(tensor)});
      continue;
    }
    const std::optional<int> usual = UsualValue(spec.name);
    CHAIRLIFT_RETURN_IF_ERROR((DispatchAll(spec.dtype, [&]<typename T>() {
      Fill<T>(tensor, usual, random);
      return absl::OkStatus();
    })));
    inputs.push_back({spec.name, std::move(tensor)});
  }
  return inputs;
}

}  // namespace chairlift
