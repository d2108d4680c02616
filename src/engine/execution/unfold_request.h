// From what a caller sent to a request that can be scheduled.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_REQUEST_H_
#define CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_REQUEST_H_

#include <memory>
#include <optional>

#include "chairlift/engine.h"
#include "engine/execution/request.h"
#include "engine/requests/response_cache.h"
#include "engine/requests/sequences.h"

namespace chairlift {

// What a caller sent, on its way into a Request.
struct Asked {
  InferRequest request;
  Sequences::MissingState state;
  // Not null: the model's response cache may answer it. Where that has no answer, its key is put
  // here, for the answer to be kept under.
  std::shared_ptr<std::optional<ResponseCache::Key>> cache_key;
};

// Whether UnfoldRequest() may take longer than a caller of InferAsync() is kept, about a
// millisecond.
bool TakesLong(const Model& model, const Asked& asked);

// Validates, asks the response cache, and unfolds: sets `request.graph`; its `model` and `reply`
// must be set. Returns the answer where the cache has it; an error refuses the request.
// Thread-safe; may run a user's code.
StatusOr<std::optional<InferResponse>> UnfoldRequest(Asked asked, Request& request);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_REQUEST_H_
