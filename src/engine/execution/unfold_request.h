// Converts a caller's request to one that can be scheduled.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_REQUEST_H_
#define CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_REQUEST_H_

#include <memory>
#include <optional>

#include "chairlift/engine.h"
#include "engine/execution/request.h"
#include "engine/requests/response_cache.h"
#include "engine/requests/sequences.h"

namespace chairlift {

// A caller's request before it becomes a Request.
struct Asked {
  InferRequest request;
  Sequences::MissingState state;
  // If not null, the model's response cache may answer it. If the cache cannot, the key is stored
  // here, under which the answer is to be saved.
  std::shared_ptr<std::optional<ResponseCache::Key>> cache_key;
};

// Whether UnfoldRequest() may take longer than InferAsync() may block its caller, about a
// millisecond.
bool TakesLong(const Model& model, const Asked& asked);

// Validates, looks up the response cache, and unfolds: sets `request.graph`; its `model` and
// `reply` must be set. Returns the answer if the cache has it; an error refuses the request.
// Thread-safe; may run a user's code.
StatusOr<std::optional<InferResponse>> UnfoldRequest(Asked asked, Request& request);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_REQUEST_H_
