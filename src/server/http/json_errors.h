// Explains why a document is not JSON. Far slower than the parser: for errors only.
#ifndef CHAIRLIFT_SERVER_HTTP_JSON_ERRORS_H_
#define CHAIRLIFT_SERVER_HTTP_JSON_ERRORS_H_

#include <string_view>

#include "chairlift/status.h"

namespace chairlift::http {

// The error for a body that no JSON parser accepts: what it is instead (a form, binary data, text
// with NaN), or the position of the wrong byte, counted from 0, and `reason` unless it is empty.
// Searches the first MiB, which takes some ms; the error says so if the byte is after that.
Status NotJson(std::string_view body, std::string_view reason);

// The error for a field that an object has twice: parsers disagree on which one counts. `path` is
// the object's, such as inputs[0].parameters; empty for the outermost.
Status GivenTwice(std::string_view field, std::string_view path);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_ERRORS_H_
