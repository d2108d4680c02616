// What the HTTP fuzzer does with one input, shared with the test that replays what it kept.
#ifndef CHAIRLIFT_TESTS_FUZZ_HTTP_CASE_H_
#define CHAIRLIFT_TESTS_FUZZ_HTTP_CASE_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/generate_codec.h"
#include "server/http/inflate.h"
#include "server/http/oip_codec.h"
#include "server/http/request_parser.h"
#include "server/http/router.h"

namespace chairlift::http {

inline void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

inline ServerLimits FuzzLimits() {
  ServerLimits limits;
  limits.max_header_bytes = 2048;
  limits.max_body_bytes = 1 << 16;
  limits.max_json_bytes = 1 << 16;
  limits.max_tensor_elements = 1 << 16;
  return limits;
}

struct ParsedRequest {
  int error_status = 0;
  std::string method;
  std::string target;
  std::string body;
  uint64_t json_length = 0;
  ContentCoding coding = ContentCoding::kIdentity;
  bool keep_alive = false;

  bool operator==(const ParsedRequest&) const = default;
};

// Every request of a connection on which `wire` arrives `step` bytes at a time.
inline std::vector<ParsedRequest> ParseConnection(std::string_view wire, size_t step) {
  std::vector<ParsedRequest> requests;
  RequestParser parser(FuzzLimits());
  size_t begin = 0;
  size_t end = 0;
  bool in_body = false;
  ParsedRequest request;
  while (true) {
    // A copy of its own size, so that a sanitizer sees any step over the end.
    const std::vector<char> copy(wire.begin() + static_cast<std::ptrdiff_t>(begin),
                                 wire.begin() + static_cast<std::ptrdiff_t>(end));
    const std::string_view ready(copy.data(), copy.size());
    auto progress = RequestParser::Progress::kDone;
    size_t consumed = 0;
    if (!in_body) {
      progress = parser.ReadHead(ready, &consumed);
    } else if (parser.head().chunked) {
      progress = parser.ReadChunks(ready, &consumed,
                                   [&](std::string_view bytes) { request.body.append(bytes); });
    } else {
      consumed = std::min<size_t>(ready.size(), parser.head().content_length - request.body.size());
      request.body.append(ready.substr(0, consumed));
      if (request.body.size() < parser.head().content_length) {
        progress = RequestParser::Progress::kNeedMore;
      }
    }
    Check(consumed <= ready.size(), "no more is consumed than is given");
    begin += consumed;
    if (progress == RequestParser::Progress::kFailed) {
      Check(parser.error_status() >= 400 && !parser.error().empty(), "a failure is explained");
      request = ParsedRequest();
      request.error_status = parser.error_status();
      requests.push_back(request);
      return requests;
    }
    if (progress == RequestParser::Progress::kNeedMore) {
      if (end == wire.size()) return requests;
      end = std::min(wire.size(), end + step);
      continue;
    }
    const RequestHead& head = parser.head();
    if (!in_body && (head.chunked || head.content_length > 0)) {
      in_body = true;
      continue;
    }
    request.method = head.method;
    request.target = head.target;
    request.keep_alive = head.keep_alive;
    request.json_length = head.json_length.value_or(request.body.size());
    request.coding = head.coding;
    requests.push_back(request);
    request = ParsedRequest();
    in_body = false;
    parser.Reset();
  }
}

// Decodes a body; where that works, encodes it as an answer and reads the answer back.
inline void DecodeAndReturn(const ParsedRequest& request) {
  const size_t bytes = request.body.size();
  const std::unique_ptr<char[]> body(new char[bytes + kBodyPadding]);
  std::memcpy(body.get(), request.body.data(), bytes);
  std::memset(body.get() + bytes, '"', kBodyPadding);
  InferDecoder decoder(FuzzLimits());
  auto decoded = decoder.Decode({body.get(), bytes}, request.json_length, nullptr);
  if (!decoded.ok()) {
    Check(!decoded.status().message().empty(), "a refusal is explained");
    return;
  }
  InferResponse response;
  response.model = request.target;
  response.id = decoded->request.id;
  response.outputs = std::move(decoded->request.inputs);
  std::string json;
  std::vector<int> binary;
  if (!EncodeInfer(response, decoded->format, &json, &binary).ok()) return;
  size_t at = json.rfind("\"outputs\":");
  Check(at != std::string::npos, "an answer has outputs");
  // As a request: "outputs" renamed to "inputs", the binary tensors behind it.
  std::string again = "{\"inputs\":" + json.substr(at + std::strlen("\"outputs\":"));
  const size_t json_bytes = again.size();
  for (const int index : binary) {
    const Tensor& tensor = response.outputs[static_cast<size_t>(index)].tensor;
    again.append(static_cast<const char*>(tensor.raw()), tensor.byte_size());
  }
  const size_t size = again.size();
  again.append(kBodyPadding, '"');
  ServerLimits limits = FuzzLimits();
  limits.max_json_bytes = 1 << 24;
  InferDecoder second(limits);
  const auto returned = second.Decode(std::string_view(again).substr(0, size), json_bytes, nullptr);
  if (json.find("\"outputs\":") != at) return;  // a name holds the word, and confuses the cut above
  Check(returned.ok(), "an answer can be read as a request");
  Check(returned->request.inputs.size() == response.outputs.size(), "every tensor comes back");
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const NamedTensor& out = response.outputs[i];
    const NamedTensor& in = returned->request.inputs[i];
    Check(out.name == in.name && out.tensor.shape() == in.tensor.shape() &&
              out.tensor.dtype() == in.tensor.dtype(),
          "a tensor comes back under its name, type and shape");
    Check(out.tensor.byte_size() == 0 ||
              std::memcmp(out.tensor.raw(), in.tensor.raw(), out.tensor.byte_size()) == 0,
          "a tensor comes back bit for bit");
  }
}

// JSON does not tell -0 from 0.
inline bool SameNumbers(const Tensor& a, const Tensor& b) {
  const auto equal = [](auto x, auto y) { return static_cast<float>(x) == static_cast<float>(y); };
  if (a.dtype() == DType::kFloat) {
    const auto x = a.values<float>(), y = b.values<float>();
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  }
  if (a.dtype() == DType::kFloat16) {
    const auto x = a.values<Float16>(), y = b.values<Float16>();
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), equal);
  }
  return a.byte_size() == 0 || std::memcmp(a.raw(), b.raw(), a.byte_size()) == 0;
}

// Decodes a body as plain JSON for a model with inputs of all kinds; where that works, what comes
// back as an answer is read as the same tensors.
inline void GenerateAndReturn(const ParsedRequest& request) {
  ModelMetadata model;
  model.name = "m";
  model.inputs = {{"x", DType::kFloat, {-1, -1}},  {"tokens", DType::kInt64, {-1, -1, 2}},
                  {"half", DType::kFloat16, {-1}}, {"sr", DType::kInt32, {}},
                  {"on", DType::kBool, {1, -1}},   {"id", DType::kUInt8, {3}}};
  const auto decode = [&model](const std::string& body) {
    const std::unique_ptr<char[]> padded(new char[body.size() + kBodyPadding]);
    std::memcpy(padded.get(), body.data(), body.size());
    std::memset(padded.get() + body.size(), '"', kBodyPadding);
    ServerLimits limits = FuzzLimits();
    limits.max_json_bytes = 1 << 24;
    GenerateDecoder decoder(limits);
    return decoder.Decode({padded.get(), body.size()}, model);
  };
  const StatusOr<DecodedGenerate> decoded = decode(request.body);
  if (!decoded.ok()) {
    Check(!decoded.status().message().empty(), "a refusal is explained");
    return;
  }
  InferResponse response;
  response.outputs = decoded->request.inputs;
  std::string json;
  if (!EncodeGenerated(response, {}, {}, &json).ok()) return;
  // As a request: without the model's name and version.
  const std::string head = R"({"model_name":"","model_version":"")";
  Check(json.starts_with(head), "an answer begins with the model's name");
  json.erase(1, head.size() - 1 + (response.outputs.empty() ? 0 : 1));
  const StatusOr<DecodedGenerate> returned = decode(json);
  Check(returned.ok(), "an answer can be read as a request");
  Check(returned->request.inputs.size() == response.outputs.size(), "every tensor comes back");
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const Tensor& out = response.outputs[i].tensor;
    const Tensor& in = returned->request.inputs[i].tensor;
    // The nesting of a tensor without elements ends at its first empty dimension.
    Check(out.size() == in.size() && (out.size() == 0 || out.shape() == in.shape()),
          "a tensor comes back in its shape");
    Check(SameNumbers(out, in), "a tensor comes back");
  }
}

// What a compressed body holds, `step` bytes at a time; nothing where it is broken or too large.
inline std::string Inflated(const ParsedRequest& request, size_t step) {
  const size_t largest = FuzzLimits().max_body_bytes;
  // Copies of their own size, so that a sanitizer sees any step over the end.
  const std::vector<char> compressed(request.body.begin(), request.body.end());
  Inflater inflater(request.coding, {compressed.data(), compressed.size()});
  std::string out;
  while (out.size() <= largest) {
    const std::unique_ptr<char[]> piece(new char[step]);
    size_t written;
    const Inflater::Progress progress = inflater.Inflate(piece.get(), step, &written);
    Check(written <= step, "no more is written than there is room");
    out.append(piece.get(), written);
    if (progress == Inflater::Progress::kDone) return out;
    if (progress == Inflater::Progress::kFailed) {
      Check(!inflater.error().empty(), "a failure is explained");
      return {};
    }
    Check(written == step, "more is asked for only where the room is full");
  }
  return {};
}

// The first byte picks how the rest is cut; the rest is what a client sends.
inline void RunHttpCase(const uint8_t* data, size_t size) {
  if (size < 1) return;
  const size_t step = data[0] % 64 + 1;
  const std::string_view wire(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<ParsedRequest> whole = ParseConnection(wire, wire.size() + 1);
  // A broken request may be found out sooner or later; a whole one is the same however it is cut.
  const std::vector<ParsedRequest> pieces = ParseConnection(wire, step);
  const auto good = [](std::vector<ParsedRequest> requests) {
    if (!requests.empty() && requests.back().error_status != 0) requests.pop_back();
    return requests;
  };
  Check(good(whole) == good(pieces), "how the bytes are cut does not matter");
  for (ParsedRequest request : whole) {
    if (request.error_status != 0) continue;
    if (request.coding != ContentCoding::kIdentity) {
      std::string body = Inflated(request, 4096);
      Check(body == Inflated(request, step), "how it is inflated does not matter");
      if (request.json_length == request.body.size()) request.json_length = body.size();
      request.body = std::move(body);
    }
    const Route route = FindRoute(request.method, request.target, Port::kInference, FuzzLimits());
    Check(route.endpoint != Endpoint::kNone || route.error_status >= 400,
          "a target without a route is refused");
    DecodeAndReturn(request);
    GenerateAndReturn(request);
  }
}

}  // namespace chairlift::http

#endif  // CHAIRLIFT_TESTS_FUZZ_HTTP_CASE_H_
