// Requests about text vectors whose answers are not lists of them, in the format of
// text-embeddings-inference:
//
//   POST /similarity  {"inputs": {"source_sentence": "a text", "sentences": ["another", …]}}
//   [0.83, …]: the cosine between the vector of each sentence and that of the source
//   POST /embed_all   {"inputs": ["a text", …]}
//   [[[…], …], …]: the model's vector for each token of each text
#ifndef CHAIRLIFT_SERVER_HTTP_VECTORS_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_VECTORS_CODEC_H_

#include <simdjson.h>

#include <string>

#include "server/http/text_codec.h"

namespace chairlift::http {

// As in TextDecoder::Decode().
Status DecodeVectors(const simdjson::dom::object& root, const protocol::Service& service,
                     const ServerLimits& limits, DecodedTexts* decoded);
Status EncodeSimilarity(const InferResponse& response, std::string* json);
Status EncodeTokenVectors(const InferResponse& response, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_VECTORS_CODEC_H_
