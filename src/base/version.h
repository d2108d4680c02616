// The version of this program, from CMakeLists.txt, and the commit it was built from.
#ifndef CHAIRLIFT_BASE_VERSION_H_
#define CHAIRLIFT_BASE_VERSION_H_

#include <string_view>

namespace chairlift {

std::string_view Version();  // "0.2.0"
// "0123456789ab", with "-dirty" if the checkout had changes; "unknown" without a checkout.
std::string_view SourceCommit();
std::string_view Compiler();  // "g++ 12.2.0"

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_VERSION_H_
