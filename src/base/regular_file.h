// Reading small files that somebody else may have put there.
#ifndef CHAIRLIFT_BASE_REGULAR_FILE_H_
#define CHAIRLIFT_BASE_REGULAR_FILE_H_

#include <cstddef>
#include <filesystem>
#include <string>

#include "chairlift/status.h"

namespace chairlift {

// The bytes of a file, at most `most` of them. NotFound where it cannot be read, InvalidArgument
// where it is no regular file: a pipe or a device might keep its reader for ever.
StatusOr<std::string> ReadRegularFile(const std::filesystem::path& file, size_t most);

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_REGULAR_FILE_H_
