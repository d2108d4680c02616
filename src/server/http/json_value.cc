#include "server/http/json_value.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "tensor/datatype.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// The shape of a value's nesting if it is regular; filling the tensor checks that.
StatusOr<Shape> NestingOf(dom::element value, int max_rank) {
  Shape shape;
  dom::array array;
  while (value.get_array().get(array) == 0) {
    if (shape.rank() == max_rank) {
      return InvalidArgument("it is nested deeper than the {} dimensions allowed", max_rank);
    }
    int64_t size = 0;
    for ([[maybe_unused]] const dom::element element : array) ++size;
    shape.Append(size);
    if (size == 0) break;
    value = *array.begin();
  }
  return shape;
}

// The first row whose length is not that of row 0; empty if there is none.
std::string UnequalRow(dom::element value) {
  dom::array rows, row;
  if (value.get_array().get(rows) != 0) return {};
  std::optional<size_t> first;
  size_t number = 0;
  for (const dom::element element : rows) {
    if (element.get_array().get(row) != 0) return {};
    if (!first) first = row.size();
    if (row.size() != *first) {
      return fmt::format(
          "row {} has {} element{}, row 0 has {}: rows of a request are equally long. Send each "
          "row as a request of its own; they share batches if the model allows it",
          number, row.size(), row.size() == 1 ? "" : "s", *first);
    }
    ++number;
  }
  return {};
}

// Adds the leading dimensions of size 1 that the value omits.
StatusOr<Shape> Filled(const Shape& given, const TensorSpec& spec, bool batches) {
  const int missing = static_cast<int>(spec.shape.size()) - given.rank();
  const auto may_be_one = [&](int axis) {
    return spec.shape[axis] < 0 || spec.shape[axis] == 1 || (axis == 0 && batches);
  };
  Shape shape;
  for (int axis = 0; axis < missing; ++axis) {
    if (!may_be_one(axis)) {
      return InvalidArgument(
          "it is nested {} deep where the model takes {} dimensions; dimension {} must be {}, so "
          "it "
          "cannot be left out",
          given.rank(), spec.shape.size(), axis, spec.shape[axis]);
    }
    shape.Append(1);
  }
  for (int64_t dim : given) shape.Append(dim);
  return shape;
}

// Inputs that are lists of token lists of any lengths (docs/guides/language-models.md).
constexpr std::string_view kListsOfTokens[] = {"stop_sequences", "bad_words_ids"};
constexpr int64_t kFiller = -1;  // padding of shorter lists
// Maximum number of lists, and of tokens in a list; the model accepts fewer.
constexpr size_t kMostLists = 256;

// Nothing if the value is not a list of lists of integers, or has too many.
std::optional<Tensor> ReadLists(dom::element value) {
  dom::array lists;
  if (value.get_array().get(lists) != 0 || lists.size() > kMostLists) return std::nullopt;
  std::vector<std::vector<int64_t>> rows;
  size_t longest = 0;
  for (const dom::element element : lists) {
    dom::array list;
    if (element.get_array().get(list) != 0 || list.size() > kMostLists) return std::nullopt;
    std::vector<int64_t>& row = rows.emplace_back();
    for (const dom::element token : list) {
      if (!ConvertInteger(token, &row.emplace_back())) return std::nullopt;
    }
    longest = std::max(longest, row.size());
  }
  const Shape shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)};
  Tensor tensor = Tensor::Allocate(DType::kInt64, shape);
  int64_t* to = tensor.data<int64_t>();
  for (const std::vector<int64_t>& row : rows) {
    to = std::copy(row.begin(), row.end(), to);
    to = std::fill_n(to, longest - row.size(), kFiller);
  }
  return tensor;
}

}  // namespace

StatusOr<Tensor> ReadValue(dom::element value, const TensorSpec& spec, bool batches,
                           const ServerLimits& limits, size_t json_bytes, int* missing) {
  const bool texts = spec.dtype == DType::kBytes;
  if (value.is_string() && !texts) {
    return InvalidArgument("{} is text; the model takes {}: send {}", Excerpt(value),
                           DatatypeName(spec.dtype),
                           spec.dtype == DType::kBool ? "true or false" : "numbers");
  }
  const bool lists = std::find(std::begin(kListsOfTokens), std::end(kListsOfTokens), spec.name) !=
                     std::end(kListsOfTokens);
  if (lists && spec.dtype == DType::kInt64 && spec.shape.size() == 2) {
    if (std::optional<Tensor> read = ReadLists(value)) {
      *missing = 0;
      return *std::move(read);
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape given, NestingOf(value, limits.max_rank));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, Filled(given, spec, batches));
  *missing = shape.rank() - given.rank();
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements, given.Checked(DTypeSize(spec.dtype)));
  // Every element takes at least a digit and a comma, so the body bounds the allocation.
  if (elements > limits.max_tensor_elements || static_cast<uint64_t>(elements) > json_bytes / 2) {
    const std::string unequal = UnequalRow(value);
    return InvalidArgument("{}", unequal.empty() ? "its arrays differ in length, or hold more "
                                                   "elements than the limit"
                                                 : unequal);
  }
  if (texts) {
    if (elements > limits.max_texts) {
      return InvalidArgument("it has {} strings; the limit is {}", elements, limits.max_texts);
    }
    dom::array array;
    std::string_view text;
    if (given.rank() > 0 && value.get_array().get(array) == 0) {
      const StatusOr<Tensor> read = ReadTexts(array, given);
      if (read.ok()) return read->Reshaped(shape);
      const std::string unequal = UnequalRow(value);
      return unequal.empty() ? read.status() : InvalidArgument("{}", unequal);
    }
    if (value.get_string().get(text) == 0) return TextTensor(shape, {std::string(text)});
    return InvalidArgument("{} is not a string", Excerpt(value));
  }
  Tensor tensor = Tensor::Allocate(spec.dtype, given);
  if (given.rank() == 0) {
    CHAIRLIFT_RETURN_IF_ERROR(ReadScalar(value, &tensor));
  } else {
    dom::array array;
    if (value.get_array().get(array) != 0)
      return Internal("a value with dimensions is not an array");
    if (Status read = ReadArray(array, &tensor); !read.ok()) {
      const std::string unequal = UnequalRow(value);
      return unequal.empty() ? std::move(read) : InvalidArgument("{}", unequal);
    }
  }
  return tensor.Reshaped(shape);
}

}  // namespace chairlift::http
