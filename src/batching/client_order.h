// The order in which each client's requests may start.
#ifndef CHAIRLIFT_BATCHING_CLIENT_ORDER_H_
#define CHAIRLIFT_BATCHING_CLIENT_ORDER_H_

#include <algorithm>
#include <deque>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "batching/scheduler.h"

namespace chairlift {

// Holds requests that have not started. Requests of client 0 have no order and are always free.
class ClientOrder {
 public:
  // Whether the request may start at once.
  bool Add(ClientId client, BatchRequestId request) {
    if (client == 0) return true;
    std::deque<BatchRequestId>& order = clients_[client];
    order.push_back(request);
    return order.size() == 1;
  }

  // Whether it has requests here.
  bool Waits(ClientId client) const { return clients_.contains(client); }

  // The request started or left. Returns the one that may start because of it.
  std::optional<BatchRequestId> Remove(ClientId client, BatchRequestId request) {
    if (client == 0) return std::nullopt;
    const auto found = clients_.find(client);
    std::deque<BatchRequestId>& order = found->second;
    const bool was_first = order.front() == request;
    order.erase(std::find(order.begin(), order.end(), request));
    if (order.empty()) {
      clients_.erase(found);
      return std::nullopt;
    }
    return was_first ? std::optional(order.front()) : std::nullopt;
  }

 private:
  absl::flat_hash_map<ClientId, std::deque<BatchRequestId>> clients_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_CLIENT_ORDER_H_
