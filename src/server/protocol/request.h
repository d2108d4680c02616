// The fields of an inference request, common to every transport of the protocol: their allowed
// values and limits. A front end parses a field and passes it on here; the result is the engine's
// InferRequest. The engine checks names, types and shapes against the model.
//
// Every error is kInvalidArgument and has the field's name and what would be correct.
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

// A value that no parameter accepts: "an array", "null".
struct OtherValue {
  std::string_view kind;
};
using Parameter = std::variant<bool, int64_t, uint64_t, double, std::string_view, OtherValue>;

// The value in an error message, cut to a readable length.
std::string Excerpt(const Parameter& value);
// 1, 1u and 1.0 are equal; a value that no parameter accepts equals no other.
bool Same(const Parameter& a, const Parameter& b);

// The whole number that a double represents, if it is exact (at most 2^53) and within T.
template <std::integral T>
bool ToInteger(double value, T* out) {
  constexpr double kExact = 9007199254740992.0;
  if (!(value >= -kExact && value <= kExact)) return false;
  const auto exact = static_cast<int64_t>(value);
  if (static_cast<double>(exact) != value || !std::in_range<T>(exact)) return false;
  *out = static_cast<T>(exact);
  return true;
}

// `what` is the field's name in errors.
StatusOr<uint64_t> Unsigned(const Parameter& value, std::string_view what);
StatusOr<bool> Boolean(const Parameter& value, std::string_view what);
Status CheckName(std::string_view name, std::string_view what, const Limits& limits);

// Sets the request's field for a parameter: timeout (µs), sequence_id, sequence_start,
// sequence_end, seed. Others are ignored, as the protocol requires: false.
StatusOr<bool> SetParameter(std::string_view name, const Parameter& value, InferRequest* request);
// Call it after all parameters have been set.
Status CheckParameters(const InferRequest& request);
// Parameters of an input and of an output: unsupported ones that would change the result are
// refused, others ignored.
Status CheckInputParameter(std::string_view name);
Status CheckOutputParameter(std::string_view name);
// The parameter "classification" of an output: how many of the largest scores replace it; 0: the
// output itself.
StatusOr<int> Classes(const Parameter& value);

// An input without its data.
struct TensorHead {
  std::optional<std::string_view> name;
  DType datatype = DType::kUndefined;
  std::optional<Shape> shape;
};

StatusOr<DType> ReadDatatype(std::string_view name);
Status AppendDimension(int64_t size, const Limits& limits, Shape* shape);
// The error for dimension `axis`, which is `found`.
Status BadDimension(int axis, std::string_view found);
// Checks that this input may follow those in `request`. Returns its number of elements.
StatusOr<int64_t> CheckInput(const TensorHead& head, const InferRequest& request,
                             const Limits& limits);

// A tensor of `bytes`, row-major and little-endian; for BYTES, each string is preceded by its size.
// If `owner` is not null, it keeps the bytes alive and unmodified, and large aligned tensors borrow
// them; otherwise they are copied.
StatusOr<Tensor> TensorFromBytes(DType datatype, const Shape& shape, std::string_view bytes,
                                 const std::shared_ptr<const void>& owner);

// Strings as the protocol's binary data: each preceded by its size, four bytes. BytesFromTexts()
// returns UINT8 [TextsByteSize()].
Tensor BytesFromTexts(const Tensor& texts);
int64_t TextsByteSize(const Tensor& texts);

Status AddOutput(std::string_view name, const Limits& limits, InferRequest* request);

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_REQUEST_H_
