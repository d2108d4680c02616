// The fields of an inference request, as every wire of the protocol has them: what they may say,
// within which limits. A front end parses a field and passes it on here; the result is the
// engine's InferRequest. Names, types and shapes are checked against the model by the engine.
//
// Every error is kInvalidArgument and names the field and what would be right.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_REQUEST_H_
#define CHAIRLIFT_SERVER_PROTOCOL_REQUEST_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "chairlift/engine.h"
#include "server/protocol/limits.h"

namespace chairlift::protocol {

// What a wire holds where no parameter takes it: "an array", "null".
struct OtherValue {
  std::string_view kind;
};
using Parameter = std::variant<bool, int64_t, uint64_t, double, std::string_view, OtherValue>;

// As an error shows it, cut to a readable length.
std::string Excerpt(const Parameter& value);
// 1, 1u and 1.0 are the same; what no parameter takes is the same as nothing.
bool Same(const Parameter& a, const Parameter& b);

// The whole number that a double is, where it is exact (at most 2^53) and within T.
template <std::integral T>
bool ToInteger(double value, T* out) {
  constexpr double kExact = 9007199254740992.0;
  if (!(value >= -kExact && value <= kExact)) return false;
  const auto exact = static_cast<int64_t>(value);
  if (static_cast<double>(exact) != value || !std::in_range<T>(exact)) return false;
  *out = static_cast<T>(exact);
  return true;
}

// `what` is how errors call the field.
StatusOr<uint64_t> Unsigned(const Parameter& value, std::string_view what);
StatusOr<bool> Boolean(const Parameter& value, std::string_view what);
Status CheckName(std::string_view name, std::string_view what, const Limits& limits);

// Sets what a parameter of the request stands for: timeout (µs), sequence_id, sequence_start,
// sequence_end. Others are ignored, as the protocol has it: false.
StatusOr<bool> SetParameter(std::string_view name, const Parameter& value, InferRequest* request);
// To be called once all parameters are set.
Status CheckParameters(const InferRequest& request);
// Parameters of an input and of an output: those that would change the outcome and are not
// supported are refused, others ignored.
Status CheckInputParameter(std::string_view name);
Status CheckOutputParameter(std::string_view name);
// The parameter "classification" of an output: how many of the largest scores are wanted in its
// place; 0: the output itself.
StatusOr<int> Classes(const Parameter& value);

// An input without its data.
struct TensorHead {
  std::optional<std::string_view> name;
  DType datatype = DType::kUndefined;
  std::optional<Shape> shape;
};

StatusOr<DType> ReadDatatype(std::string_view name);
Status AppendDimension(int64_t size, const Limits& limits, Shape* shape);
// The error of dimension `axis`, which is `found`.
Status BadDimension(int axis, std::string_view found);
// That this input may follow those in `request`. Returns the number of its elements.
StatusOr<int64_t> CheckInput(const TensorHead& head, const InferRequest& request,
                             const Limits& limits);

// A tensor of `bytes`, row major and little endian; of BYTES, each text behind its size. Where
// `owner` is not null it keeps them alive and unwritten, and large aligned tensors borrow them;
// else they are copied.
StatusOr<Tensor> TensorFromBytes(DType datatype, const Shape& shape, std::string_view bytes,
                                 const std::shared_ptr<const void>& owner);

// Texts as the protocol's binary data: each behind its size, four bytes. BytesFromTexts() gives
// UINT8 [TextsByteSize()].
Tensor BytesFromTexts(const Tensor& texts);
int64_t TextsByteSize(const Tensor& texts);

Status AddOutput(std::string_view name, const Limits& limits, InferRequest* request);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_REQUEST_H_
