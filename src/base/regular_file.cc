#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace chairlift {
namespace {

// Closes its file when destroyed.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

StatusOr<std::string> ReadRegularFile(const std::filesystem::path& file, size_t most) {
  const File opened(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (opened.fd() < 0) {
    return NotFound("{} cannot be read: {}", file.string(), std::strerror(errno));
  }
  struct stat about {};
  if (::fstat(opened.fd(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return InvalidArgument("{} is not a regular file", file.string());
  }
  std::string text(std::min(most, static_cast<size_t>(about.st_size)), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t more = ::read(opened.fd(), text.data() + got, text.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return NotFound("{} cannot be read: {}", file.string(), std::strerror(errno));
    if (more == 0) break;
    got += static_cast<size_t>(more);
  }
  text.resize(got);
  return text;
}

}  // namespace chairlift
