// The resources of all connections of one client address.
#ifndef CHAIRLIFT_SERVER_PROTOCOL_CLIENTS_H_
#define CHAIRLIFT_SERVER_PROTOCOL_CLIENTS_H_

#include <array>
#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/byte_budget.h"
#include "server/protocol/errors.h"

namespace chairlift::protocol {

// Thread-safe.
struct Client {
  // Counts a request until EndRequest(). False, with nothing counted, if it already has `limit`.
  [[nodiscard]] bool BeginRequest(int limit) {
    if (requests.fetch_add(1) < limit) return true;
    --requests;
    return false;
  }
  void EndRequest() { --requests; }

  std::string name;                   // "192.0.2.7" or "2001:db8::/64"
  uint64_t number = 0;                // of its address; the same each time it connects
  std::atomic<int> connections{0};    // open
  std::atomic<int> requests{0};       // read and not yet answered
  std::shared_ptr<ByteBudget> bytes;  // in bodies and unread answers
};

// The errors for a client that has reached its limit of requests in flight, or that sends bytes for
// which there is no room. `lacking`: the full budget, its own share or the whole.
Error TooManyRequests(const Client& client, int limit);
Error TooManyBytes(const Client& client, const ByteBudget& lacking);

// Thread-safe. An IPv6 client is its /64, because one owner has all addresses in it.
class ClientTable {
 public:
  // Each client may hold `share` bytes of `whole`.
  ClientTable(int64_t share, std::shared_ptr<ByteBudget> whole);

  // The only entry of that client while it is held.
  std::shared_ptr<Client> Find(const boost::asio::ip::address& address);

  // Number of entries: at most twice the held clients, plus 64.
  size_t size() const;

 private:
  using Key = std::array<unsigned char, 16>;

  const int64_t share_;
  const std::shared_ptr<ByteBudget> whole_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<Key, std::weak_ptr<Client>> clients_;
  size_t tidy_at_ = 64;
};

}  // namespace chairlift::protocol

#endif  // CHAIRLIFT_SERVER_PROTOCOL_CLIENTS_H_
