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
  // `tokens` more tokens of the answer have arrived.
  using Came = std::function<void(int64_t tokens)>;

  virtual ~TokenTarget() = default;
  virtual std::string name() const = 0;
  // Sends a prompt (for a model with an encoder, a source) without waiting. The answer has exactly
  // `output` tokens and arrives in parts. `came` runs for each part, on any thread, one call at a
  // time; `done` runs once, after them.
  virtual void Stream(std::span<const int64_t> prompt, int64_t output, Came came,
                      std::function<void(Status)> done) = 0;
};

// `engine` must have loaded `model` and outlive the target. `beams` > 1: beam search, whose answer
// arrives at its end. InvalidArgument if the model does not generate.
StatusOr<std::unique_ptr<TokenTarget>> MakeEngineTokenTarget(Engine& engine,
                                                             const std::string& model, int beams);
// Like MakeHttpTarget(); uses /generate_stream.
StatusOr<std::unique_ptr<TokenTarget>> MakeHttpTokenTarget(const std::string& url,
                                                           const std::string& model, int beams,
                                                           int connections);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_TOKEN_TARGET_H_
