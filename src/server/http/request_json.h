// The JSON of requests, as simdjson parses it: limits, and fields with errors in words. Included by
// the decoders alone, for simdjson is a heavy header.
#ifndef CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_
#define CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_

#include <simdjson.h>

#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "chairlift/engine.h"
#include "server/limits.h"
#include "server/protocol/request.h"

namespace chairlift::http {

protocol::Parameter ParameterFrom(simdjson::dom::element value);

// Every error below is kInvalidArgument, unless it says otherwise, and calls the field `what`.
StatusOr<simdjson::dom::array> Array(simdjson::dom::element value, std::string_view what);
StatusOr<simdjson::dom::object> Object(simdjson::dom::element value, std::string_view what);
// A string of at most max_name_bytes.
StatusOr<std::string_view> Name(simdjson::dom::element value, std::string_view what,
                                const protocol::Limits& limits);

// The fields of one object that have been read.
class SeenFields {
 public:
  // kInvalidArgument where `field` has been added before.
  Status Add(std::string_view field);

 private:
  absl::InlinedVector<std::string_view, 8> fields_;
};

// What all requests may have in "parameters", and whether outputs are binary unless they say so
// themselves.
Status ReadParameters(simdjson::dom::element value, InferRequest* request, bool* binary_output);

// A parser that keeps its memory from one document to the next. Not thread-safe.
class JsonParser {
 public:
  // `json` has kBodyPadding readable bytes past its end. What is returned is valid until the next
  // call. kResourceExhausted where there is no memory.
  StatusOr<simdjson::dom::object> Parse(std::string_view json, const ServerLimits& limits);
  // To be called when a request is done: frees the memory that a large document took.
  void Trim();

 private:
  std::optional<simdjson::dom::parser> parser_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_
