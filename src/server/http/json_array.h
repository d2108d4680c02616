// Converts JSON values parsed by simdjson to tensors, with checks of range and type. Included only
// by decoders, because simdjson is a heavy header.
#ifndef CHAIRLIFT_SERVER_HTTP_JSON_ARRAY_H_
#define CHAIRLIFT_SERVER_HTTP_JSON_ARRAY_H_

#include <simdjson.h>

#include <string>
#include <utility>

#include "chairlift/tensor.h"
#include "server/protocol/request.h"

namespace chairlift::http {

// A value as text for an error message, cut to a readable length.
std::string Excerpt(simdjson::dom::element value);

// False if the value is not a whole number or is outside T. "3.0" and "1e3" are whole too, as long
// as they are exact.
template <typename T>
bool ConvertInteger(simdjson::dom::element value, T* out) {
  using simdjson::dom::element_type;
  switch (value.type()) {
    case element_type::INT64: {
      const int64_t wide = value.get_int64().value_unsafe();
      if (!std::in_range<T>(wide)) return false;
      *out = static_cast<T>(wide);
      return true;
    }
    case element_type::UINT64: {
      const uint64_t wide = value.get_uint64().value_unsafe();
      if (!std::in_range<T>(wide)) return false;
      *out = static_cast<T>(wide);
      return true;
    }
    case element_type::DOUBLE:
      return protocol::ToInteger(value.get_double().value_unsafe(), out);
    default:
      return false;
  }
}

// The number of values (numbers, strings and so on) in an array, including nested arrays.
std::string CountOf(simdjson::dom::array data);
// The error for `data` with `found` elements ("7", "more than 7") if the shape needs another
// number.
Status CountMismatch(const Shape& shape, std::string_view found);

// Fills a tensor of one element from a JSON number or boolean.
Status ReadScalar(simdjson::dom::element value, Tensor* tensor);

// The strings of a JSON array: flat, or nested exactly like `shape`.
StatusOr<Tensor> ReadTexts(simdjson::dom::array data, const Shape& shape);

// Fills a tensor from a JSON array: flat, or nested exactly like its shape.
Status ReadArray(simdjson::dom::array data, Tensor* tensor);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_ARRAY_H_
