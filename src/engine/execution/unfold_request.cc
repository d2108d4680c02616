#include "engine/execution/unfold_request.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "engine/requests/request_size.h"

namespace chairlift {
namespace {

std::optional<InferResponse> FromCache(const ValidatedRequest& validated, const Asked& asked,
                                       const Request& request) {
  const Clock& clock = Clock::Steady();
  const TimePoint start = clock.Now();
  Model& model = *request.model;
  ResponseCache::Key key = ResponseCache::KeyOf(validated);
  std::optional<std::vector<NamedTensor>> outputs = model.response_cache()->Find(key);
  if (!outputs) {
    model.statistics().CacheMiss(clock.Now() - start);
    *asked.cache_key = std::move(key);
    return std::nullopt;
  }
  InferResponse response;
  response.model = model.metadata().name;
  response.version = model.metadata().version;
  response.id = request.id;
  response.outputs = *std::move(outputs);
  model.statistics().CacheHit(clock.Now() - start, request.inside);
  return response;
}

}  // namespace

bool TakesLong(const Model& model, const Asked& asked) {
  const InferRequest& request = asked.request;
  if (model.program().TakesLong(request)) return true;
  const int64_t hashed = asked.cache_key != nullptr ? InputBytes(request) : 0;
  return std::max(hashed, asked.state.new_bytes) > kQuickBytes;
}

StatusOr<std::optional<InferResponse>> UnfoldRequest(Asked asked, Request& request) {
  Model& model = *request.model;
  CHAIRLIFT_RETURN_IF_ERROR(model.program().rules().Prepare(asked.request));
  if (asked.state.add != nullptr) {
    CHAIRLIFT_RETURN_IF_ERROR(asked.state.add(asked.request));
  } else if (model.sequences() != nullptr) {
    CHAIRLIFT_RETURN_IF_ERROR(model.sequences()->CheckSent(asked.request));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated, model.program().Validate(asked.request));
  if (asked.cache_key != nullptr) {
    if (auto response = FromCache(validated, asked, request)) return response;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      request.graph, model.program().Unfold(std::move(validated), request.reply.parts != nullptr));
  return std::nullopt;
}

}  // namespace chairlift
