// Which requests may use the routes that change the server. Requests that a page of another site
// makes a browser send may not, whether to this address or to a name that the page redirected here
// (DNS rebinding).
#ifndef CHAIRLIFT_SERVER_HTTP_SITE_POLICY_H_
#define CHAIRLIFT_SERVER_HTTP_SITE_POLICY_H_

#include <string>
#include <string_view>
#include <vector>

namespace chairlift::http {

// Immutable.
class SitePolicy {
 public:
  // `loopback`: the server listens on loopback only. `hosts`: names that clients may use for it.
  // `origins`: sites whose pages may use it; "*" has no effect here.
  SitePolicy(bool loopback, std::vector<std::string> hosts, std::vector<std::string> origins);

  // Why a request with these fields is refused; empty if it is not. A browser sets `origin` in
  // every request that changes something. Without it, `host` is checked only on loopback, where a
  // name other than localhost can only come from an attacker.
  std::string Refusal(std::string_view host, std::string_view origin) const;

 private:
  const bool loopback_;
  const std::vector<std::string> hosts_;
  const std::vector<std::string> origins_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_SITE_POLICY_H_
