// Text classification requests and answers in the format of text-embeddings-inference:
//
//   POST /predict  {"inputs": "a text", "raw_scores": false}
//                  {"inputs": [["a text"], ["a text", "and its pair"]]}
//   [{"score": 0.9, "label": "POSITIVE"}, …], most likely first; a list of these for a list
#ifndef CHAIRLIFT_SERVER_HTTP_CLASSIFY_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_CLASSIFY_CODEC_H_

#include <simdjson.h>

#include <string>

#include "server/http/text_codec.h"

namespace chairlift::http {

// As in TextDecoder::Decode().
Status DecodePredict(const simdjson::dom::object& root, const protocol::Service& service,
                     const ServerLimits& limits, DecodedTexts* decoded);
Status EncodeClasses(const InferResponse& response, const TextFormat& format, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_CLASSIFY_CODEC_H_
