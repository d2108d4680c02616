#include "engine/execution/unfold_request.h"

#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "engine/requests/request_size.h"

namespace chairlift {
namespace {

// A state may have 1000 times as many elements as the inputs that size it.
constexpr int64_t kQuickPlaces = 64;

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
  model.statistics().CacheHit(clock.Now() - start);
  return response;
}

}  // namespace

bool TakesLong(const Model& model, const Asked& asked) {
  const InferRequest& request = asked.request;
  if (model.program().TakesLong(request)) return true;
  const bool sized = asked.add_state != nullptr;
  if ((sized || asked.cache_key != nullptr) && InputBytes(request) > kQuickBytes) return true;
  return sized && OpenPlaces(model.program().signature(), request) > kQuickPlaces;
}

StatusOr<std::optional<InferResponse>> UnfoldRequest(Asked asked, Request& request) {
  Model& model = *request.model;
  if (asked.add_state != nullptr) CHAIRLIFT_RETURN_IF_ERROR(asked.add_state(asked.request));
  if (asked.add_state == nullptr && model.sequences() != nullptr) {
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
