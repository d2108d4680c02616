// Queries of OpenAI's and text-embeddings-inference's clients about models with text inputs.
#ifndef CHAIRLIFT_SERVER_HTTP_TEXT_LISTING_H_
#define CHAIRLIFT_SERVER_HTTP_TEXT_LISTING_H_

#include <string>

#include "server/protocol/service.h"

namespace chairlift::http {

// All below is JSON.

// GET /v1/models
std::string ListTextModels(const protocol::Service& service);
// GET /v1/models/{model}. kNotFound: there is no such model, or it has no text inputs.
StatusOr<std::string> DescribeTextModel(const std::string& name, const protocol::Service& service);
// GET /info
std::string DescribeTextService(const protocol::Service& service);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TEXT_LISTING_H_
