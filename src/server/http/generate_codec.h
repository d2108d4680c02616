// Requests and answers of /generate and /generate_stream, as in Triton's generate extension: plain
// JSON values under the names of the model's inputs and outputs.
//
//   {"id": "7", "source": [5, 6, 7], "parameters": {"timeout": 50000}}
//
// Inputs may also stand in "parameters", as clients of models that generate write them.
//
// A value's shape is its nesting, its type the model's. Leading dimensions that the model has and
// the value has not are 1.
#ifndef CHAIRLIFT_SERVER_HTTP_GENERATE_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_GENERATE_CODEC_H_

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift::http {

struct DecodedGenerate {
  InferRequest request;  // model and version are the caller's to fill in
  // Every input left out exactly its first dimension: so does the answer.
  bool without_batch = false;
};

// Keeps its buffers from one request to the next; not thread-safe.
class GenerateDecoder {
 public:
  explicit GenerateDecoder(const ServerLimits& limits);
  ~GenerateDecoder();

  // `body` has kBodyPadding readable bytes past its end. Every error is kInvalidArgument and names
  // the input and what would be right.
  StatusOr<DecodedGenerate> Decode(std::string_view body, const ModelMetadata& model);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Appends {"model_name":…,"model_version":…,"<output>":value,…} of the outputs that are not in
// `streamed`; false where that leaves none. kInvalidArgument where a value has no JSON.
StatusOr<bool> EncodeGenerated(const InferResponse& response, const std::set<std::string>& streamed,
                               bool without_batch, std::string* json);

// What all parts of one answer begin with.
struct GeneratedHead {
  std::string model;
  std::string version;
  std::string id;
};
// Likewise of a part: each output a list of time steps, or a piece of text, and
// "parameters":{"row":…,"first":…}, where they belong.
Status EncodeGeneratedPart(const GeneratedHead& head, const InferPart& part, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_GENERATE_CODEC_H_
