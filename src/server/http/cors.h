// Which pages of other sites may read answers (cross-origin resource sharing).
#ifndef CHAIRLIFT_SERVER_HTTP_CORS_H_
#define CHAIRLIFT_SERVER_HTTP_CORS_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chairlift::http {

// Immutable.
class CorsPolicy {
 public:
  // Sites as in a browser's field `Origin`, or "*" for all; empty: none.
  explicit CorsPolicy(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // The value of Access-Control-Allow-Origin; empty if `origin` may not read the answer. Valid as
  // long as `origin`.
  std::string_view Allowed(std::string_view origin) const {
    if (origin.empty()) return {};
    const auto has = [this](std::string_view wanted) {
      return std::find(origins_.begin(), origins_.end(), wanted) != origins_.end();
    };
    if (has("*")) return "*";
    return has(origin) ? origin : std::string_view();
  }

 private:
  const std::vector<std::string> origins_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_CORS_H_
