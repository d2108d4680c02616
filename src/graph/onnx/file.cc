// A regular file, opened for reading.
#include "graph/onnx/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace chairlift {

StatusOr<File> File::Open(const std::filesystem::path& path) {
  // Non-blocking: opening a named pipe must not wait.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return NotFound("cannot be opened: {}{}", std::strerror(errno),
                    errno == EACCES ? "; give this user the right to read it" : "");
  }
  File file(descriptor, 0);
  struct stat stat = {};
  if (fstat(descriptor, &stat) != 0 || !S_ISREG(stat.st_mode)) {
    return InvalidArgument("is not a regular file");
  }
  file.size_ = stat.st_size;
  return file;
}

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

File::File(File&& other) noexcept : descriptor_(other.descriptor_), size_(other.size_) {
  other.descriptor_ = -1;
}

std::filesystem::path File::RealPath() const {
  std::error_code error;
  return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor_), error);
}

Status File::Read(int64_t offset, int64_t bytes, void* destination) const {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t n = pread(descriptor_, static_cast<char*>(destination) + done,
                            static_cast<size_t>(bytes - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Unavailable("cannot be read: {}", std::strerror(errno));
    if (n == 0) return Unavailable("ends after {} bytes", offset + done);
    done += n;
  }
  return absl::OkStatus();
}

}  // namespace chairlift
