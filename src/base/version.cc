#include "base/version.h"

#include "chairlift_version_config.h"

namespace chairlift {

std::string_view Version() { return CHAIRLIFT_VERSION; }
std::string_view SourceCommit() { return CHAIRLIFT_COMMIT; }

std::string_view Compiler() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

}  // namespace chairlift
