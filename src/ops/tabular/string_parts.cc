// StringConcat and StringSplit.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chairlift/text.h"
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/broadcast.h"
#include "ops/tabular/tabular.h"
#include "ops/tabular/text_limit.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

Status InferStringConcat(InferContext& context) { return InferBroadcast(context, DType::kBytes); }

// The element of `shape` that broadcasting places at element `i` of `out`.
size_t SourceOf(const Shape& shape, const Shape& out, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int axis = out.rank() - 1, own = shape.rank() - 1; own >= 0; --axis, --own) {
    if (shape[own] != 1) at += i % out[axis] * stride;
    stride *= shape[own];
    i /= out[axis];
  }
  return static_cast<size_t>(at);
}

StatusOr<std::vector<Tensor>> EvaluateStringConcat(const EvaluateContext& context) {
  const Tensor &a = context.inputs[0], &b = context.inputs[1];
  Shape shape;
  const int rank = std::max(a.shape().rank(), b.shape().rank());
  for (int axis = 0; axis < rank; ++axis) {
    const auto dim = [&](const Shape& of) {
      const int own = axis - (rank - of.rank());
      return own < 0 ? int64_t{1} : of[own];
    };
    const int64_t x = dim(a.shape()), y = dim(b.shape());
    if (x != y && x != 1 && y != 1) {
      return InvalidArgument("shapes {} and {} do not fit together", a.shape().ToString(),
                             b.shape().ToString());
    }
    shape.Append(x == 1 ? y : x);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t size, shape.Checked(sizeof(std::string_view)));
  std::vector<std::string> texts;
  size_t bytes = 0;
  for (int64_t i = 0; i < size; ++i) {
    const std::string_view x = TextsOf(a)[SourceOf(a.shape(), shape, i)];
    const std::string_view y = TextsOf(b)[SourceOf(b.shape(), shape, i)];
    bytes += x.size() + y.size() + sizeof(std::string);
    if (bytes > kMostTextBytes) return MoreThanMostTextBytes();
    texts.emplace_back(x).append(y);
  }
  return std::vector<Tensor>{TextTensor(shape, std::move(texts))};
}

Status InferStringSplit(InferContext& context) {
  SymbolicShape shape = context.shape(0);
  context.set_output(1, DType::kInt64, shape);
  if (shape.has_rank()) shape.Append(Dim::Unknown());
  context.set_output(0, DType::kBytes, std::move(shape));
  return absl::OkStatus();
}

// As Python's str.split(): between runs of blanks if the delimiter is empty. At most `most` cuts,
// any number if that is negative.
std::vector<std::string_view> Pieces(std::string_view text, std::string_view delimiter,
                                     int64_t most) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  std::vector<std::string_view> pieces;
  const bool blanks = delimiter.empty();
  const auto skip = [&] {
    const size_t first = text.find_first_not_of(kBlanks);
    text = first == std::string_view::npos ? std::string_view() : text.substr(first);
  };
  if (blanks) skip();
  if (text.empty()) return pieces;
  while (most < 0 || std::ssize(pieces) < most) {
    const size_t at = blanks ? text.find_first_of(kBlanks) : text.find(delimiter);
    if (at == std::string_view::npos) break;
    pieces.push_back(text.substr(0, at));
    text.remove_prefix(at + (blanks ? 1 : delimiter.size()));
    if (!blanks) continue;
    skip();
    if (text.empty()) return pieces;
  }
  if (blanks && std::ssize(pieces) == most) {
    text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  }
  pieces.push_back(text);
  return pieces;
}

StatusOr<std::vector<Tensor>> EvaluateStringSplit(const EvaluateContext& context) {
  const Tensor& x = context.inputs[0];
  const std::string delimiter = context.attributes.String("delimiter", "");
  const int64_t most = context.attributes.Int("maxsplit", -1);
  Tensor counts = Tensor::Allocate(DType::kInt64, x.shape());
  std::vector<std::vector<std::string_view>> all;
  const auto rows = static_cast<size_t>(x.size());
  size_t widest = 0, bytes = ContentBytes(x);
  for (size_t i = 0; i < rows; ++i) {
    all.push_back(Pieces(TextsOf(x)[i], delimiter, most));
    counts.data<int64_t>()[i] = std::ssize(all.back());
    widest = std::max(widest, all.back().size());
    bytes += all.back().size() * sizeof(std::string_view);
    if (bytes > kMostTextBytes || widest > kMostTextBytes / sizeof(std::string) / rows) {
      return MoreThanMostTextBytes();
    }
  }
  std::vector<std::string> texts(all.size() * widest);
  for (size_t i = 0; i < all.size(); ++i) {
    std::copy(all[i].begin(), all[i].end(), texts.begin() + static_cast<ptrdiff_t>(i * widest));
  }
  Shape shape = x.shape();
  shape.Append(static_cast<int64_t>(widest));
  return std::vector<Tensor>{TextTensor(shape, std::move(texts)), std::move(counts)};
}

}  // namespace

void RegisterStringParts(OperatorRegistry& registry) {
  registry.Add({.name = "StringConcat",
                .min_opset = 20,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kTextType},
                .infer = InferStringConcat,
                .axes = ElementwiseAxes,
                .evaluate = EvaluateStringConcat});
  registry.Add({.name = "StringSplit",
                .min_opset = 20,
                .max_outputs = 2,
                .input_types = {kTextType},
                .infer = InferStringSplit,
                .evaluate = EvaluateStringSplit});
}

}  // namespace chairlift
