// The JSON of requests, as simdjson parses it: limits, and fields with errors in words. Included by
// the decoders alone, for simdjson is a heavy header.
#ifndef CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_
#define CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_

#include <simdjson.h>

#include <optional>
#include <string_view>

#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift::http {

// Every error below is kInvalidArgument, unless it says otherwise, and calls the field `what`.
StatusOr<uint64_t> Unsigned(simdjson::dom::element value, std::string_view what);
StatusOr<bool> Boolean(simdjson::dom::element value, std::string_view what);
StatusOr<simdjson::dom::array> Array(simdjson::dom::element value, std::string_view what);
StatusOr<simdjson::dom::object> Object(simdjson::dom::element value, std::string_view what);
// A string of at most max_name_bytes.
StatusOr<std::string_view> Name(simdjson::dom::element value, std::string_view what,
                                const ServerLimits& limits);

// What all requests may have in "parameters": the timeout, the sequence, and whether outputs are
// binary unless they say so themselves.
Status ReadParameters(simdjson::dom::element value, InferRequest* request, bool* binary_output);

// A parser that keeps its memory from one document to the next. Not thread-safe.
class JsonParser {
 public:
  // `json` has kBodyPadding readable bytes past its end. What is returned is valid until the next
  // call. kResourceExhausted where there is no memory.
  StatusOr<simdjson::dom::object> Parse(std::string_view json, const ServerLimits& limits);
  // To be called when a request is done: gives back what a large document has taken.
  void Trim();

 private:
  std::optional<simdjson::dom::parser> parser_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_REQUEST_JSON_H_
