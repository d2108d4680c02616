// Inference requests and responses of the Open Inference Protocol v2, in JSON and with the binary
// tensor extension. Wire only: names, types and shapes are checked against the model by the engine.
//
// A request body is `json_bytes` of JSON and then, in the order of the inputs, the bytes of each
// input that has a `binary_data_size`. A response is written the same way round.
#ifndef CHAIRLIFT_SERVER_HTTP_OIP_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_OIP_CODEC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift::http {

// In which form the caller wants each output.
struct OutputFormat {
  bool binary_by_default = false;
  std::vector<std::pair<std::string, bool>> binary;  // by name, where the request says so

  bool Binary(std::string_view output) const;
};

struct DecodedInfer {
  InferRequest request;  // model and version are the caller's to fill in
  OutputFormat format;
};

// Bytes past the end of a body that must be readable (their values do not matter).
inline constexpr size_t kBodyPadding = 64;

// Reads requests. Keeps its buffers from one to the next; not thread-safe.
class InferDecoder {
 public:
  explicit InferDecoder(const ServerLimits& limits);
  ~InferDecoder();

  // `body` has kBodyPadding readable bytes past its end. Where `owner` is not null it keeps the
  // body alive and unwritten, and large aligned tensors borrow their bytes from it; else all are
  // copied. Every error is kInvalidArgument and names the input and what would be right.
  StatusOr<DecodedInfer> Decode(std::string_view body, size_t json_bytes,
                                const std::shared_ptr<const void>& owner);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A raw binary request: the body is the data of the model's only input, and nothing else. Of a
// model that batches it is one row; at most one other dimension may vary, and follows from the
// number of bytes. The answer is binary. `owner` and errors as above.
StatusOr<DecodedInfer> DecodeRaw(std::string_view body, const ModelMetadata& model,
                                 const ServerLimits& limits,
                                 const std::shared_ptr<const void>& owner);

// Appends a tensor's values as "1,2,3"; texts in quotes. Returns the index of the first one that
// JSON cannot carry (NaN, infinity), or −1.
int64_t AppendData(const Tensor& tensor, std::string* json);

// Elements that the JSON of the response will have to spell out.
int64_t JsonElements(const InferResponse& response, const OutputFormat& format);

// Appends the JSON of `response` to `*json` and to `*binary` the indices of the outputs whose bytes
// follow it, in order. kInvalidArgument where a value (NaN, infinity) has no JSON.
Status EncodeInfer(const InferResponse& response, const OutputFormat& format, std::string* json,
                   std::vector<int>* binary);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_OIP_CODEC_H_
