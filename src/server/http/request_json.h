// The JSON of requests, parsed by simdjson, with limits and readable errors about fields. Included
// only by decoders, because simdjson is a heavy header.
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

// Every error below is kInvalidArgument unless stated otherwise, and uses `what` as the field's
// name.
StatusOr<simdjson::dom::array> Array(simdjson::dom::element value, std::string_view what);
StatusOr<simdjson::dom::object> Object(simdjson::dom::element value, std::string_view what);
// A string of at most max_name_bytes.
StatusOr<std::string_view> Name(simdjson::dom::element value, std::string_view what,
                                const protocol::Limits& limits);

// The common fields of "parameters", and whether outputs are binary by default. The field `except`
// is left out.
Status ReadParameters(simdjson::dom::element value, InferRequest* request, bool* binary_output,
                      std::string_view except = {});

// A parser that keeps its memory between documents. Not thread-safe.
class JsonParser {
 public:
  // `json` has kBodyPadding readable bytes past its end. The result is valid until the next call.
  // No object in it has duplicate fields. Zeros keep their sign: -0 is a double. Integers beyond 64
  // bits are doubles too. kResourceExhausted if there is no memory.
  StatusOr<simdjson::dom::object> Parse(std::string_view json, const ServerLimits& limits);
  // Call it after a request: frees the memory of a large document.
  void Trim();

 private:
  simdjson::error_code Read(std::string_view json, const ServerLimits& limits,
                            simdjson::dom::element* root);

  std::optional<simdjson::dom::parser> parser_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_
