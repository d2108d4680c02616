// Requests and answers of /generate and /generate_stream, as in Triton's generate extension: plain
// JSON values with the names of the model's inputs and outputs.
//
//   {"id": "7", "source": [5, 6, 7], "parameters": {"timeout": 50000}}
//
// Inputs may also be in "parameters", where clients of language models put them.
//
// A value's shape is its nesting, its type the model's. Leading dimensions that the value lacks are
// 1.
#ifndef CHAIRLIFT_SERVER_HTTP_GENERATE_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_GENERATE_CODEC_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift::http {

struct DecodedGenerate {
  InferRequest request;  // the caller sets model and version
  // Leading dimensions that every input that counts rows omitted, the batch first: so does the
  // answer. 0 if no input counts rows, such as those of a Python function whose shapes are not
  // annotated.
  int omitted = 0;
};

// Keeps its buffers between requests; not thread-safe.
class GenerateDecoder {
 public:
  explicit GenerateDecoder(const ServerLimits& limits);
  ~GenerateDecoder();

  // `body` has kBodyPadding readable bytes past its end. Every error is kInvalidArgument and has
  // the input and what would be correct.
  StatusOr<DecodedGenerate> Decode(std::string_view body, const ModelMetadata& model);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Leading dimensions that an answer to such a request omits, by output: the batch, and dimensions
// behind it that are always 1.
using OmittedDims = std::map<std::string, int>;
OmittedDims OmittedIn(const std::vector<TensorSpec>& outputs, int omitted);

// Appends {"model_name":…,"model_version":…,"<output>":value,…} for the outputs that are not in
// `streamed`; false if none remain. kInvalidArgument if a value cannot be written as JSON.
StatusOr<bool> EncodeGenerated(const InferResponse& response, const std::set<std::string>& streamed,
                               const OmittedDims& omitted, std::string* json);

// The common start of all parts of one answer.
struct GeneratedHead {
  std::string model;
  std::string version;
  std::string id;
};
// The same for a part: each output is a list of time steps, or a piece of text, with
// "parameters":{"row":…,"first":…} for its position.
Status EncodeGeneratedPart(const GeneratedHead& head, const InferPart& part, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_GENERATE_CODEC_H_
