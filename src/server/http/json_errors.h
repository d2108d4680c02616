// Locates errors in a JSON document. Far slower than the parser: for errors only.
#ifndef CHAIRLIFT_SERVER_HTTP_JSON_ERRORS_H_
#define CHAIRLIFT_SERVER_HTTP_JSON_ERRORS_H_

#include <string>
#include <string_view>

#include "chairlift/status.h"

namespace chairlift::http {

// " at byte 17", counted from 0, for the end of a message; "" where it cannot be found. Looks at
// the first MiB, which takes some ms, and says so where the error is behind it.
std::string JsonErrorPosition(std::string_view json);

// The error of a field that an object has twice: parsers disagree on which one counts.
Status GivenTwice(std::string_view field);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_JSON_ERRORS_H_
