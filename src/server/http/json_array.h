// JSON values, as simdjson parsed them, into tensors: range and integer-ness checked. Included by
// the decoder alone, for simdjson is a heavy header.
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

// False where the value is no whole number or outside T. "3.0" and "1e3" are whole too, while
// exact.
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

// The numbers, texts and so on in an array and the arrays in it.
std::string CountOf(simdjson::dom::array data);
// The error of `data` that has `found` elements ("7", "more than 7") where the shape needs others.
Status CountMismatch(const Shape& shape, std::string_view found);

// Fills a tensor of one element from a JSON number or boolean.
Status ReadScalar(simdjson::dom::element value, Tensor* tensor);

// The texts of a JSON array: flat, or nested exactly as `shape`.
StatusOr<Tensor> ReadTexts(simdjson::dom::array data, const Shape& shape);

// Fills a tensor from a JSON array: flat, or nested exactly as its shape.
Status ReadArray(simdjson::dom::array data, Tensor* tensor);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_ARRAY_H_
