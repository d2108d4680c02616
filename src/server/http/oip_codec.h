// Inference requests and responses of the Open Inference Protocol v2, in JSON and with the binary
// tensor extension. Encoding only: the engine checks names, types and shapes against the model.
//
// A request body is `json_bytes` of JSON followed by the bytes of each input that has a
// `binary_data_size`, in the order of the inputs. A response has the same structure.
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

// The form of each output that the caller requests.
struct OutputFormat {
  bool binary_by_default = false;
  std::vector<std::pair<std::string, bool>> binary;  // by name, if the request says so

  bool Binary(std::string_view output) const;
};

struct DecodedInfer {
  InferRequest request;  // the caller sets model and version
  OutputFormat format;
};

// Bytes past the end of a body that must be readable (their values do not matter).
inline constexpr size_t kBodyPadding = 64;

// Reads requests. Keeps its buffers between them; not thread-safe.
class InferDecoder {
 public:
  explicit InferDecoder(const ServerLimits& limits);
  ~InferDecoder();

  // `body` has kBodyPadding readable bytes past its end. If `owner` is not null, it keeps the body
  // alive and unmodified, and large aligned tensors borrow their bytes from it; otherwise all are
  // copied. Every error is kInvalidArgument and has the input and what would be correct.
  StatusOr<DecodedInfer> Decode(std::string_view body, size_t json_bytes,
                                const std::shared_ptr<const void>& owner);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A raw binary request: the body is only the data of the model's single input. If the model
// batches, it is one row. At most one other dimension may vary, and follows from the number of
// bytes. The answer is binary. `owner` and errors as above.
StatusOr<DecodedInfer> DecodeRaw(std::string_view body, const ModelMetadata& model,
                                 const ServerLimits& limits,
                                 const std::shared_ptr<const void>& owner);

// Appends a tensor's values as "1,2,3"; strings in quotes. Returns the index of the first value
// that JSON cannot represent (NaN, infinity), or −1.
int64_t AppendData(const Tensor& tensor, std::string* json);

// The number of elements that the response's JSON contains.
int64_t JsonElements(const InferResponse& response, const OutputFormat& format);

// Appends the JSON of `response` to `*json`, and to `*binary` the indices of the outputs whose
// bytes follow it, in order. kInvalidArgument if JSON cannot represent a value (NaN, infinity).
Status EncodeInfer(const InferResponse& response, const OutputFormat& format, std::string* json,
                   std::vector<int>* binary);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_OIP_CODEC_H_
