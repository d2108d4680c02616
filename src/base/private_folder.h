// Small files in a folder that only its owner may write, such as a cache.
#ifndef CHAIRLIFT_BASE_PRIVATE_FOLDER_H_
#define CHAIRLIFT_BASE_PRIVATE_FOLDER_H_

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/status.h"

namespace chairlift {

// An open folder that belongs to this process's user and that nobody else may write. The last
// component of its path, and the names in it, are never followed as symbolic links. Thread-safe.
class PrivateFolder {
 public:
  // kNotFound: no such folder. kUnavailable: a link, no folder, another user's, or open to others
  // and not to be closed to them.
  static StatusOr<PrivateFolder> Open(const std::filesystem::path& path);
  // As Open(), after making what is missing, with mode 0700.
  static StatusOr<PrivateFolder> OpenOrMake(const std::filesystem::path& path);

  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  // All of a file. kNotFound: no such file. kInvalidArgument: a link, no regular file, another
  // user's, or larger than `most` bytes.
  StatusOr<std::string> Read(const std::string& name, size_t most) const;
  // Written beside and moved over: a reader sees the old file or the new one. kUnavailable where
  // that fails; nothing is left behind then.
  Status Write(const std::string& name, std::string_view content) const;

  struct Entry {
    std::string name;
    std::chrono::system_clock::time_point written;
  };
  // Names with this ending, at most `most` of them in no order. Folders are left out.
  std::vector<Entry> List(std::string_view ending, size_t most) const;
  // No error where there is no such name.
  void Remove(const std::string& name) const;

  // The ending of a name while its content is written. A process that ends meanwhile leaves it.
  static constexpr std::string_view kPart = ".part";

 private:
  PrivateFolder(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::filesystem::path path_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_PRIVATE_FOLDER_H_
