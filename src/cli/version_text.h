// What `chairlift --version` prints.
#ifndef CHAIRLIFT_CLI_VERSION_TEXT_H_
#define CHAIRLIFT_CLI_VERSION_TEXT_H_

#include <string>

namespace chairlift {

// Lines: version and commit; compiler; instruction sets; libraries. No newline at the end.
std::string VersionText();

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_VERSION_TEXT_H_
