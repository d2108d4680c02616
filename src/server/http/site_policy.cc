#include "server/http/site_policy.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/excerpt.h"

namespace chairlift::http {
namespace {

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(std::string(text)); }

// host[:port] without the port.
std::string_view WithoutPort(std::string_view authority) {
  const size_t colon = authority.rfind(':');
  const bool in_address = colon != authority.npos && authority.find(']', colon) != authority.npos;
  return colon == authority.npos || in_address ? authority : authority.substr(0, colon);
}

// An IPv4 address, or an IPv6 address in brackets.
bool IsAddress(std::string_view host) {
  in6_addr address;
  if (host.starts_with('[') && host.ends_with(']')) {
    const std::string inner(host.substr(1, host.size() - 2));
    return ::inet_pton(AF_INET6, inner.c_str(), &address) == 1;
  }
  return ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1;
}

// Whether the site is http(s)://`host`, ignoring the scheme's default port.
bool IsSame(std::string_view origin, std::string_view host) {
  for (const auto& [scheme, port] :
       {std::pair<std::string_view, std::string_view>{"http://", ":80"}, {"https://", ":443"}}) {
    if (!origin.starts_with(scheme)) continue;
    const auto bare = [port = port](std::string_view authority) {
      if (authority.ends_with(port)) authority.remove_suffix(port.size());
      return Lower(authority);
    };
    return bare(origin.substr(scheme.size())) == bare(host);
  }
  return false;
}

}  // namespace

SitePolicy::SitePolicy(bool loopback, std::vector<std::string> hosts,
                       std::vector<std::string> origins)
    : loopback_(loopback), hosts_(std::move(hosts)), origins_(std::move(origins)) {}

std::string SitePolicy::Refusal(std::string_view host, std::string_view origin) const {
  constexpr size_t kShown = 128;
  if (origin != "*" && std::find(origins_.begin(), origins_.end(), origin) != origins_.end()) {
    return {};
  }
  if (!origin.empty() && !IsSame(origin, host)) {
    return fmt::format(
        "pages of '{}' may not change this server; --cors-allow-origin names sites that may",
        CutText(origin, kShown));
  }
  if (origin.empty() && (host.empty() || !loopback_)) return {};
  const std::string name = Lower(WithoutPort(host));
  const bool known = IsAddress(name) || name == "localhost" || name.ends_with(".localhost") ||
                     std::any_of(hosts_.begin(), hosts_.end(),
                                 [&](const std::string& own) { return Lower(own) == name; });
  if (known) return {};
  return fmt::format(
      "the Host field names '{}', which may be another site's name for this address; use the "
      "address or localhost, or start the server with --allowed-host",
      CutText(host, kShown));
}

}  // namespace chairlift::http
