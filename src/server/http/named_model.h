// The model that a text request names, found without parsing its body: a large request is admitted
// before it is parsed.
#ifndef CHAIRLIFT_SERVER_HTTP_NAMED_MODEL_H_
#define CHAIRLIFT_SERVER_HTTP_NAMED_MODEL_H_

#include <string>
#include <string_view>

#include "server/http/router.h"
#include "server/protocol/service.h"

namespace chairlift::http {

// The value of the field "model" of a JSON object, as it is written; empty if the field is missing
// or has escapes. If the body is not valid JSON, the result may be any part of it. Reads all bytes
// before the field.
std::string_view NamedModel(std::string_view body);
// The same, but reads only a few KiB at the beginning and at the end. Empty if the field is
// elsewhere.
std::string_view NamedModelAtEnds(std::string_view body);

// The name under which the engine has the model of a text request that names `model`. Empty: the
// request names none, and there is not exactly one.
std::string ServedTextModel(Endpoint endpoint, std::string_view model,
                            const protocol::Service& service);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_NAMED_MODEL_H_
