// What clients of OpenAI's and of text-embeddings-inference ask about models that take text inputs.
#ifndef CHAIRLIFT_SERVER_HTTP_TEXT_LISTING_H_
#define CHAIRLIFT_SERVER_HTTP_TEXT_LISTING_H_

#include <string>

#include "server/protocol/service.h"

namespace chairlift::http {

// All below is JSON.

// GET /v1/models
std::string ListTextModels(const protocol::Service& service);
// GET /v1/models/{model}. kNotFound: there is no such model, or it takes no text inputs.
StatusOr<std::string> DescribeTextModel(const std::string& name, const protocol::Service& service);
// GET /info
std::string DescribeTextService(const protocol::Service& service);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TEXT_LISTING_H_
