// Reads small files from untrusted places.
#ifndef CHAIRLIFT_BASE_REGULAR_FILE_H_
#define CHAIRLIFT_BASE_REGULAR_FILE_H_

#include <cstddef>
#include <filesystem>
#include <string>

#include "chairlift/status.h"

namespace chairlift {

// The first `most` bytes of a file. NotFound if it cannot be read, InvalidArgument if it is not a
// regular file: a pipe or a device could block its reader for ever.
StatusOr<std::string> ReadRegularFile(const std::filesystem::path& file, size_t most);

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_REGULAR_FILE_H_
