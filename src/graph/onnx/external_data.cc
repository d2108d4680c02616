// Reading the bytes of tensors that lie in files beside the model.
#include "graph/onnx/external_data.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace chairlift {
namespace {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(File&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

StatusOr<File> Open(const std::filesystem::path& folder, const ExternalDataRange& range) {
  const std::string& location = range.location;
  if (folder.empty()) {
    return InvalidArgument("external data '{}' cannot be read: the model has no folder", location);
  }
  const std::filesystem::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute()) {
    return InvalidArgument("external data location '{}' is not a relative path", location);
  }
  for (const auto& part : relative) {
    if (part == "..") {
      return InvalidArgument("external data location '{}' leaves the model's folder", location);
    }
  }
  std::error_code error;
  const std::filesystem::path root = std::filesystem::canonical(folder, error);
  if (error) return NotFound("model folder '{}': {}", folder.string(), error.message());
  const std::filesystem::path path = std::filesystem::canonical(root / relative, error);
  if (error) return NotFound("external data '{}': {}", location, error.message());
  if (std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first != root.end()) {
    return InvalidArgument("external data location '{}' leads out of the model's folder", location);
  }
  // Non-blocking: opening a named pipe must not wait.
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.descriptor() < 0) {
    return NotFound("external data '{}': {}", location, std::strerror(errno));
  }
  struct stat stat = {};
  if (fstat(file.descriptor(), &stat) != 0 || !S_ISREG(stat.st_mode)) {
    return InvalidArgument("external data '{}' is not a regular file", location);
  }
  if (range.offset < 0 || range.bytes < 0 || range.offset > stat.st_size ||
      range.bytes > stat.st_size - range.offset) {
    return InvalidArgument("external data '{}': {} bytes at offset {} lie outside its {} bytes",
                           location, range.bytes, range.offset, static_cast<int64_t>(stat.st_size));
  }
  return file;
}

}  // namespace

Status CheckExternalData(const std::filesystem::path& folder, const ExternalDataRange& range) {
  return Open(folder, range).status();
}

Status ReadExternalData(const std::filesystem::path& folder, const ExternalDataRange& range,
                        void* destination) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const File file, Open(folder, range));
  int64_t done = 0;
  while (done < range.bytes) {
    const ssize_t n = pread(file.descriptor(), static_cast<char*>(destination) + done,
                            static_cast<size_t>(range.bytes - done), range.offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Unavailable("external data '{}': {}", range.location,
                         n == 0 ? "the file shrank while it was read" : std::strerror(errno));
    }
    done += n;
  }
  return absl::OkStatus();
}

}  // namespace chairlift
