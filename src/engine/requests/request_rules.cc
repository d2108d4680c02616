#include "engine/requests/request_rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/closest.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "engine/requests/any_seed.h"
#include "graph/batch_axis.h"
#include "ops/generation/random.h"
#include "tensor/dispatch_all.h"

namespace chairlift {
namespace {

constexpr char kSeed[] = "seed";  // an input of one number, in place of InferRequest::seed
// Rows of an input without elements that may each have a seed.
constexpr int64_t kMaxEmptyRows = 65536;

const NamedTensor* FindInput(const InferRequest& request, std::string_view name) {
  const auto found = std::find_if(request.inputs.begin(), request.inputs.end(),
                                  [&](const NamedTensor& input) { return input.name == name; });
  return found == request.inputs.end() ? nullptr : &*found;
}

StatusOr<int64_t> SeedFrom(const Tensor& tensor) {
  if (tensor.size() == 1 && tensor.dtype() == DType::kInt64) return tensor.data<int64_t>()[0];
  if (tensor.size() == 1 && tensor.dtype() == DType::kInt32) return tensor.data<int32_t>()[0];
  return InvalidArgument("input 'seed' is {} of shape {}; it must be one number of type int64",
                         DTypeName(tensor.dtype()), tensor.shape().ToString());
}

constexpr int64_t kMaxClasses = int64_t{1} << 20;  // per answer: each is a string

// The sequence's id as a number of type T.
template <typename T>
StatusOr<Tensor> IdAsNumber(const std::string& id) {
  T value{};
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), value);
  if (error != std::errc() || end != id.data() + id.size()) {
    return InvalidArgument(
        "sequence_id is '{}'; the model takes it as an input of type {}, which cannot hold that",
        id.substr(0, 64), DTypeName(DTypeOf<T>::kValue));
  }
  return Tensor::Scalar<T>(value);
}

StatusOr<Tensor> IdOf(const std::string& id, DType dtype) {
  switch (dtype) {
    case DType::kInt32:
      return IdAsNumber<int32_t>(id);
    case DType::kUInt32:
      return IdAsNumber<uint32_t>(id);
    case DType::kInt64:
      return IdAsNumber<int64_t>(id);
    default:
      return IdAsNumber<uint64_t>(id);
  }
}

StatusOr<Tensor> ValueOf(const SequenceControl& control, const InferRequest& request) {
  switch (control.kind) {
    case SequenceControl::Kind::kStart:
      return request.sequence_start ? control.on : control.off;
    case SequenceControl::Kind::kEnd:
      return request.sequence_end ? control.on : control.off;
    case SequenceControl::Kind::kReady:
      return control.on;
    case SequenceControl::Kind::kId:
      break;
  }
  return IdOf(request.sequence, control.dtype);
}

// A tensor filled with one number.
Tensor Filled(const Tensor& scalar, const Shape& shape) {
  Tensor filled = Tensor::Allocate(scalar.dtype(), shape);
  auto* to = static_cast<std::byte*>(filled.raw());
  const size_t bytes = scalar.byte_size();
  for (int64_t i = 0; i < filled.size(); ++i, to += bytes) std::memcpy(to, scalar.raw(), bytes);
  return filled;
}

template <typename T>
std::string ScoreText(T score) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return fmt::format("{:f}", static_cast<float>(score));
  } else if constexpr (std::is_floating_point_v<T>) {
    return fmt::format("{:f}", score);
  } else {
    return fmt::format("{}", static_cast<std::conditional_t<sizeof(T) == 1, int, T>>(score));
  }
}

template <typename T>
auto Comparable(T score) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<float>(score);
  } else {
    return score;
  }
}

template <typename T>
bool IsNumber(T score) {
  if constexpr (std::is_floating_point_v<T>) return !std::isnan(score);
  return true;
}

// NaN comes last; ties in the order of classes.
template <typename T>
void AppendLargest(const T* scores, int64_t size, int64_t count,
                   const std::vector<std::string>& labels, std::vector<std::string>& texts) {
  const auto better = [&](int64_t a, int64_t b) {
    const auto x = Comparable(scores[a]), y = Comparable(scores[b]);
    if (IsNumber(x) != IsNumber(y)) return IsNumber(x);
    if (!IsNumber(x) || x == y) return a < b;
    return x > y;
  };
  // A heap of the best so far, worst first.
  std::vector<int64_t> best(static_cast<size_t>(count));
  std::iota(best.begin(), best.end(), int64_t{0});
  std::make_heap(best.begin(), best.end(), better);
  for (int64_t i = count; count > 0 && i < size; ++i) {
    if (!better(i, best.front())) continue;
    std::pop_heap(best.begin(), best.end(), better);
    best.back() = i;
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort_heap(best.begin(), best.end(), better);
  for (const int64_t own : best) {
    const auto place = static_cast<size_t>(own);
    std::string text = fmt::format("{}:{}", ScoreText(scores[place]), place);
    if (place < labels.size()) text += ":" + labels[place];
    texts.push_back(std::move(text));
  }
}

}  // namespace

Status RequestRules::Check(const Signature& signature) const {
  for (const SequenceControl& control : controls) {
    const auto found =
        std::find_if(signature.inputs.begin(), signature.inputs.end(),
                     [&](const SymbolicSpec& input) { return input.name == control.input; });
    if (found == signature.inputs.end()) {
      return InvalidArgument(
          "control_input: the model has no input '{}'{}", control.input,
          KnownNames(control.input, NamesOf(signature.inputs, &SymbolicSpec::name)));
    }
    if (found->dtype != control.dtype) {
      return InvalidArgument("control_input: input '{}' is {} there, and {} in the model",
                             control.input, DTypeName(control.dtype), DTypeName(found->dtype));
    }
    const SymbolicShape& shape = found->shape;
    const int first = max_rows.value_or(0) > 0 ? 1 : 0;
    const bool fits = !shape.has_rank() || (shape.rank() == first + 1 &&
                                            (!shape[first].known() || shape[first].value() == 1));
    if (fits) continue;
    return InvalidArgument(
        "control_input: input '{}' has shape {} in the model; it must take one number{}",
        control.input, shape.ToString(), first == 1 ? " a row, [-1,1]" : ", [1]");
  }
  return absl::OkStatus();
}

void RequestRules::PlaceSeeds(const Signature& signature) {
  const auto own = std::find_if(signature.inputs.begin(), signature.inputs.end(),
                                [&](const SymbolicSpec& input) { return input.name == seeds; });
  if (own == signature.inputs.end()) seeds.clear();
  if (seeds.empty()) return;
  const Dim& rows = own->shape[0];
  for (const SymbolicSpec& input : signature.inputs) {
    seed_is_an_input_ |= input.name == kSeed;
    const bool counts = &input != &*own && input.shape.has_rank() && input.shape.rank() > 0 &&
                        rows.is_symbol() && input.shape[0].Same(rows);
    if (counts && rows_from_.empty()) rows_from_ = input.name;
  }
}

Status RequestRules::AddSeeds(InferRequest& request) const {
  if (FindInput(request, seeds) != nullptr) {
    return InvalidArgument("input '{}' is filled by the server: set the parameter \"seed\" instead",
                           seeds);
  }
  std::optional<int64_t> seed = request.seed;
  if (const NamedTensor* const given = FindInput(request, kSeed);
      given != nullptr && !seed_is_an_input_) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t number, SeedFrom(given->tensor));
    if (seed.value_or(number) != number) {
      return InvalidArgument("input 'seed' is {}, and parameter \"seed\" is {}: give one of them",
                             number, *seed);
    }
    seed = number;
    request.inputs.erase(request.inputs.begin() + (given - request.inputs.data()));
  }
  int64_t rows = 1;
  if (const NamedTensor* const counted = FindInput(request, rows_from_);
      counted != nullptr && counted->tensor.shape().rank() > 0) {
    rows = counted->tensor.shape()[0];
    const int64_t most = std::min(kMaxBatchRows, std::max(counted->tensor.size(), kMaxEmptyRows));
    if (rows > most) {
      return InvalidArgument("input '{}' has {} rows; a model with random numbers takes {}",
                             rows_from_, rows, most);
    }
  }
  request.inputs.push_back({seeds, SeedsOf(seed ? *seed : AnySeed(), seed.has_value(), rows)});
  return absl::OkStatus();
}

void RequestRules::DropProved(const Signature& signature) {
  const int first = max_rows.value_or(0) > 0 ? 1 : 0;
  std::erase_if(output_dims, [&](const auto& declared) {
    const auto& [name, dims] = declared;
    const auto found =
        std::find_if(signature.outputs.begin(), signature.outputs.end(),
                     [&name = name](const SymbolicSpec& output) { return output.name == name; });
    if (found == signature.outputs.end()) return true;
    const SymbolicShape& shape = found->shape;
    if (!shape.has_rank()) return false;
    for (size_t i = 0; i < dims.size(); ++i) {
      const int axis = first + static_cast<int>(i);
      if (dims[i] >= 0 && (axis >= shape.rank() || !shape[axis].known())) return false;
    }
    return true;
  });
}

Status RequestRules::CheckOutputs(const std::vector<NamedTensor>& outputs) const {
  const int first = max_rows.value_or(0) > 0 ? 1 : 0;
  for (const NamedTensor& output : outputs) {
    const auto declared = output_dims.find(output.name);
    if (declared == output_dims.end()) continue;
    const std::vector<int64_t>& dims = declared->second;
    const Shape& shape = output.tensor.shape();
    bool fits = shape.rank() == first + static_cast<int>(dims.size());
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      fits = dims[i] < 0 || dims[i] == shape[first + static_cast<int>(i)];
    }
    if (fits) continue;
    return InvalidArgument(
        "output '{}' has shape {}, but its declared dims are [{}]; correct them in the model's "
        "configuration",
        output.name, shape.ToString(), fmt::join(dims, ","));
  }
  return absl::OkStatus();
}

void RequestRules::SetTimeout(InferRequest& request) const {
  if (!timeout) return;
  if (!timeout->rejects || !timeout->own_timeout) {
    request.timeout.reset();
  } else if (request.timeout && timeout->default_us > 0) {
    request.timeout = std::min(*request.timeout, std::chrono::microseconds(timeout->default_us));
  }
}

Status RequestRules::Prepare(InferRequest& request) const {
  if (!seeds.empty()) CHAIRLIFT_RETURN_IF_ERROR(AddSeeds(request));
  int64_t rows = 1;
  const bool has_rows = max_rows.value_or(0) > 0;
  for (const NamedTensor& input : request.inputs) {
    if (!has_rows || input.tensor.shape().rank() == 0) continue;
    rows = input.tensor.shape()[0];
    if (rows <= *max_rows) continue;
    return InvalidArgument("the request has {} rows; max_batch_size of the model is {}", rows,
                           *max_rows);
  }
  if (request.sequence.empty()) return absl::OkStatus();
  for (const SequenceControl& control : controls) {
    const bool sent =
        std::any_of(request.inputs.begin(), request.inputs.end(),
                    [&](const NamedTensor& input) { return input.name == control.input; });
    if (sent) {
      return InvalidArgument("input '{}' follows from the sequence: the server fills it",
                             control.input);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor value, ValueOf(control, request));
    request.inputs.push_back({control.input, Filled(value, has_rows ? Shape{rows, 1} : Shape{1})});
  }
  return absl::OkStatus();
}

StatusOr<Tensor> LargestClasses(const Tensor& scores, int count, bool rows,
                                const std::vector<std::string>& labels) {
  if (scores.dtype() == DType::kBytes) {
    return InvalidArgument("BYTES has no largest values to classify; ask for the output itself");
  }
  const Shape& shape = scores.shape();
  rows = rows && shape.rank() > 0;
  const int64_t num_rows = rows ? shape[0] : 1;
  const int64_t size = shape.NumElements(rows ? 1 : 0, shape.rank());
  const int64_t own = std::min<int64_t>(count, size);
  if (num_rows * own > kMaxClasses) {
    return InvalidArgument("{} rows of {} classes are more than the {} that an answer may have",
                           num_rows, own, kMaxClasses);
  }
  std::vector<std::string> texts;
  CHAIRLIFT_RETURN_IF_ERROR(DispatchAll(scores.dtype(), [&]<typename T>() -> Status {
    for (int64_t row = 0; row < num_rows; ++row) {
      AppendLargest(scores.data<T>() + row * size, size, own, labels, texts);
    }
    return absl::OkStatus();
  }));
  return TextTensor(rows ? Shape{num_rows, own} : Shape{own}, std::move(texts));
}

}  // namespace chairlift
