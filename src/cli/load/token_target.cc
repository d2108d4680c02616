#include "cli/load/token_target.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/excerpt.h"
#include "base/status.h"
#include "cli/load/http_connections.h"
#include "cli/load/http_target.h"

namespace chairlift {
namespace {

constexpr std::string_view kTokens = "output_ids";

Status CheckGenerates(const std::string& model, const std::vector<TensorSpec>& inputs) {
  const auto has = [&](std::string_view name) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const TensorSpec& input) { return input.name == name; });
  };
  if (has("input_ids") && has("max_tokens") && has("min_tokens") && has("ignore_eos")) {
    return absl::OkStatus();
  }
  if (has("input_features") && has("max_tokens")) {
    return InvalidArgument(
        "model '{}' generates from features; --prompt-lengths and --output-lengths are for models "
        "that take tokens",
        model);
  }
  return InvalidArgument(
      "model '{}' is not served as one that generates: leave out --prompt-lengths and "
      "--output-lengths; `chairlift inspect` says why it is not",
      model);
}

class EngineTokenTarget final : public TokenTarget {
 public:
  EngineTokenTarget(Engine& engine, std::string model, int beams)
      : engine_(engine), model_(std::move(model)), beams_(beams) {}

  std::string name() const override { return model_ + " in process"; }
  void Stream(std::span<const int64_t> prompt, int64_t output, Came came,
              std::function<void(Status)> done) override {
    const auto size = static_cast<int64_t>(prompt.size());
    const Tensor most = Tensor::Of<int32_t>({1}, {static_cast<int32_t>(output)});
    InferRequest request;
    request.model = model_;
    request.inputs = {{"input_ids", Tensor::Of<int64_t>({1, size}, prompt)},
                      {"max_tokens", most},
                      {"min_tokens", most},
                      {"ignore_eos", Tensor::Of<bool>({1}, {true})},
                      {"num_beams", Tensor::Of<int32_t>({1}, {beams_})}};
    if (beams_ == 1) {
      request.on_parts = [came](std::span<const InferPart> parts) {
        int64_t tokens = 0;
        for (const InferPart& part : parts) tokens += TokensOf(part.outputs);
        if (tokens > 0) came(tokens);
      };
    }
    engine_.InferAsync(std::move(request), [this, came = std::move(came), done = std::move(done)](
                                               const StatusOr<InferResponse>& response) {
      if (response.ok() && beams_ > 1) came(TokensOf(response->outputs));
      done(response.status());
    });
  }

 private:
  static int64_t TokensOf(std::span<const NamedTensor> outputs) {
    int64_t tokens = 0;
    for (const NamedTensor& values : outputs) {
      if (values.name == kTokens) tokens += values.tensor.size();
    }
    return tokens;
  }

  Engine& engine_;
  const std::string model_;
  const int beams_;
};

// For one answer.
struct HttpStream {
  std::string request;
  Status failed;
};

class HttpTokenTarget final : public TokenTarget {
 public:
  HttpTokenTarget(std::string name, std::string model, int beams,
                  std::unique_ptr<HttpConnections> client)
      : name_(std::move(name)),
        model_(std::move(model)),
        beams_(beams),
        client_(std::move(client)) {}

  std::string name() const override { return name_; }
  void Stream(std::span<const int64_t> prompt, int64_t output, Came came,
              std::function<void(Status)> done) override {
    const std::string body = fmt::format(
        R"({{"input_ids":[{0}],"max_tokens":{1},"min_tokens":{1},"ignore_eos":true,"num_beams":{2}}})",
        fmt::join(prompt, ","), output, beams_);
    auto stream = std::make_shared<HttpStream>();
    stream->request = fmt::format(
        "POST /v2/models/{}/generate_stream HTTP/1.1\r\nHost: chairlift\r\n"
        "Content-Length: {}\r\n\r\n{}",
        model_, body.size(), body);
    client_->Stream(
        stream->request,
        [stream, came = std::move(came)](std::string_view event) {
          const int64_t tokens = TokensOf(event);
          if (tokens > 0) {
            came(tokens);
          } else if (event.find("\"error\"") != std::string_view::npos) {
            stream->failed = Internal("the stream ended with {}", CutText(event, 400));
          }
        },
        [stream, done = std::move(done)](const Status& status, std::string_view) {
          done(status.ok() ? stream->failed : status);
        });
  }

 private:
  // Counts the list in an event, {…,"output_ids":[7,8]}. Does not parse JSON, because the client
  // shares the server's cores.
  static int64_t TokensOf(std::string_view event) {
    const size_t name = event.find(kTokens);
    if (name == std::string_view::npos) return 0;
    const std::string_view rest = event.substr(name + kTokens.size());
    const size_t open = rest.find('['), close = rest.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open + 2) {
      return 0;
    }
    const std::string_view list = rest.substr(open, close - open);
    return std::count(list.begin(), list.end(), ',') + 1;
  }

  const std::string name_, model_;
  const int beams_;
  const std::unique_ptr<HttpConnections> client_;
};

}  // namespace

StatusOr<std::unique_ptr<TokenTarget>> MakeEngineTokenTarget(Engine& engine,
                                                             const std::string& model, int beams) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine.Metadata(model));
  CHAIRLIFT_RETURN_IF_ERROR(CheckGenerates(model, metadata.inputs));
  return std::make_unique<EngineTokenTarget>(engine, model, beams);
}

StatusOr<std::unique_ptr<TokenTarget>> MakeHttpTokenTarget(const std::string& url,
                                                           const std::string& model, int beams,
                                                           int connections) {
  CHAIRLIFT_ASSIGN_OR_RETURN(HttpModel found, FindHttpModel(url, model, connections));
  CHAIRLIFT_RETURN_IF_ERROR(CheckGenerates(model, found.inputs));
  return std::make_unique<HttpTokenTarget>(std::move(found.name), model, beams,
                                           std::move(found.client));
}

}  // namespace chairlift
