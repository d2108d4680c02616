// Determines which addresses are one client, and drops those that are gone.
#include "server/protocol/clients.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <utility>

namespace chairlift::protocol {
namespace {

using boost::asio::ip::address;
using boost::asio::ip::address_v4;
using boost::asio::ip::address_v6;

constexpr size_t kFewClients = 64;

address_v6::bytes_type Bytes(const address& ip) {
  if (ip.is_v4())
    return boost::asio::ip::make_address_v6(boost::asio::ip::v4_mapped, ip.to_v4()).to_bytes();
  address_v6::bytes_type bytes = ip.to_v6().to_bytes();
  if (!ip.to_v6().is_v4_mapped()) std::fill(bytes.begin() + 8, bytes.end(), 0);
  return bytes;
}

std::string ClientName(const address_v6::bytes_type& bytes) {
  const address_v6 ip(bytes);
  if (ip.is_v4_mapped()) {
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, ip).to_string();
  }
  return ip.to_string() + "/64";
}

}  // namespace

Error TooManyRequests(const Client& client, int limit) {
  return {ErrorKind::kClientLimit,
          fmt::format("the client {} has its limit of {} requests in flight", client.name, limit)};
}

Error TooManyBytes(const Client& client, const ByteBudget& lacking) {
  if (!lacking.is_share()) {
    return {ErrorKind::kBusy,
            fmt::format("the server holds its limit of {} bytes of request bodies and unread "
                        "answers",
                        lacking.limit())};
  }
  return {ErrorKind::kClientLimit,
          fmt::format("the client {} holds its limit of {} bytes of request bodies and unread "
                      "answers",
                      client.name, lacking.limit())};
}

ClientTable::ClientTable(int64_t share, std::shared_ptr<ByteBudget> whole)
    : share_(share), whole_(std::move(whole)) {}

std::shared_ptr<Client> ClientTable::Find(const address& ip) {
  const address_v6::bytes_type bytes = Bytes(ip);
  Key key;
  std::copy(bytes.begin(), bytes.end(), key.begin());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (clients_.size() >= tidy_at_) {
    absl::erase_if(clients_, [](const auto& entry) { return entry.second.expired(); });
    tidy_at_ = std::max(kFewClients, 2 * clients_.size());
  }
  std::weak_ptr<Client>& entry = clients_[key];
  std::shared_ptr<Client> client = entry.lock();
  if (client == nullptr) {
    client = std::make_shared<Client>();
    client->name = ClientName(bytes);
    client->number = absl::HashOf(key);
    client->bytes = std::make_shared<ByteBudget>(share_, whole_);
    entry = client;
  }
  return client;
}

size_t ClientTable::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return clients_.size();
}

}  // namespace chairlift::protocol
