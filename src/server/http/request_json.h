// The JSON of requests, as simdjson parses it: limits, and fields with errors in words. Included by
// the decoders alone, for simdjson is a heavy header.
#ifndef CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_
#define CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_

#include <simdjson.h>

#include <optional>
#include <string_view>

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

// What all requests may have in "parameters", and whether outputs are binary unless they say so
// themselves.
Status ReadParameters(simdjson::dom::element value, InferRequest* request, bool* binary_output);

// A parser that keeps its memory from one document to the next. Not thread-safe.
class JsonParser {
 public:
  // `json` has kBodyPadding readable bytes past its end. What is returned is valid until the next
  // call. No object in it has a field twice. Zeros keep their sign: -0 is a double. Integers beyond
  // 64 bits are doubles, too. kResourceExhausted if there is no memory.
  StatusOr<simdjson::dom::object> Parse(std::string_view json, const ServerLimits& limits);
  // To be called when a request is done: frees the memory that a large document took.
  void Trim();

 private:
  simdjson::error_code Read(std::string_view json, const ServerLimits& limits,
                            simdjson::dom::element* root);

  std::optional<simdjson::dom::parser> parser_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_
