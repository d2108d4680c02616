// The version that GET /v2 tells.
#ifndef CHAIRLIFT_SERVER_VERSION_H_
#define CHAIRLIFT_SERVER_VERSION_H_

#include <string_view>

namespace chairlift {

inline constexpr std::string_view kServerVersion = CHAIRLIFT_VERSION;

}  // namespace chairlift

#endif  // CHAIRLIFT_SERVER_VERSION_H_
