// The target of a load of requests that generate: an engine in this process, or a server by URL.
#ifndef CHAIRLIFT_CLI_LOAD_TOKEN_TARGET_H_
#define CHAIRLIFT_CLI_LOAD_TOKEN_TARGET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "chairlift/engine.h"

namespace chairlift {

// Thread-safe.
class TokenTarget {
 public:
  // So many tokens of the answer have come.
  using Came = std::function<void(int64_t tokens)>;

  virtual ~TokenTarget() = default;
  virtual std::string name() const = 0;
  // Sends a prompt (of a model with an encoder, a source) without waiting. The answer has `output`
  // tokens, whatever they are, and comes in parts: `came` runs for each, on any thread, one call at
  // a time, and `done` once, after them.
  virtual void Stream(std::span<const int64_t> prompt, int64_t output, Came came,
                      std::function<void(Status)> done) = 0;
};

// `engine` must have `model` loaded and outlive the target. `beams` > 1: of each search, whose
// answer comes at its end. InvalidArgument where the model does not generate.
StatusOr<std::unique_ptr<TokenTarget>> MakeEngineTokenTarget(Engine& engine,
                                                             const std::string& model, int beams);
// As MakeHttpTarget(); asks /generate_stream.
StatusOr<std::unique_ptr<TokenTarget>> MakeHttpTokenTarget(const std::string& url,
                                                           const std::string& model, int beams,
                                                           int connections);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_TOKEN_TARGET_H_
