// Tokenizer requests and answers in the format of text-embeddings-inference:
//
//   POST /tokenize  {"inputs": "a text", "add_special_tokens": true}
//   [[{"id": 101, "text": "[CLS]", "special": true, "start": null, "stop": null}, …]]
//   POST /decode    {"ids": [101, 1037, 102], "skip_special_tokens": true}
//   ["a"]
#ifndef CHAIRLIFT_SERVER_HTTP_TOKENIZE_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_TOKENIZE_CODEC_H_

#include <simdjson.h>

#include <string>

#include "server/http/text_codec.h"

namespace chairlift::http {

// As in TextDecoder::Decode().
Status DecodeTokenize(const simdjson::dom::object& root, const protocol::Service& service,
                      const ServerLimits& limits, DecodedTexts* decoded);
Status EncodeTokens(Endpoint endpoint, const InferResponse& response, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TOKENIZE_CODEC_H_
