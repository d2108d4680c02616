// Requests and answers about vectors of texts that are no list of them, as
// text-embeddings-inference has them:
//
//   POST /similarity  {"inputs": {"source_sentence": "a text", "sentences": ["another", …]}}
//   [0.83, …]: the cosine between the vectors of each sentence and of the source
//   POST /embed_all   {"inputs": ["a text", …]}
//   [[[…], …], …]: a vector for each token of each text, as the model gives it
#ifndef CHAIRLIFT_SERVER_HTTP_VECTORS_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_VECTORS_CODEC_H_

#include <simdjson.h>

#include <string>

#include "server/http/text_codec.h"

namespace chairlift::http {

// As TextDecoder::Decode().
Status DecodeVectors(const simdjson::dom::object& root, const protocol::Service& service,
                     const ServerLimits& limits, DecodedTexts* decoded);
Status EncodeSimilarity(const InferResponse& response, std::string* json);
Status EncodeTokenVectors(const InferResponse& response, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_VECTORS_CODEC_H_
