// Small files in a folder that only its owner can write to, such as a cache.
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

// An open folder that belongs to this process's user and that no one else can write to. Symbolic
// links are never followed, neither as the last component of its path nor as names in it.
// Thread-safe.
class PrivateFolder {
 public:
  // kNotFound: no such folder. kUnavailable: it is a link, not a folder, belongs to another user,
  // or is writable by others and its mode cannot be changed.
  static StatusOr<PrivateFolder> Open(const std::filesystem::path& path);
  // Like Open(), but creates missing folders first, with mode 0700.
  static StatusOr<PrivateFolder> OpenOrMake(const std::filesystem::path& path);

  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  // The whole content of a file. kNotFound: no such file. kInvalidArgument: it is a link, not a
  // regular file, belongs to another user, or is larger than `most` bytes.
  StatusOr<std::string> Read(const std::string& name, size_t most) const;
  // Writes a temporary file and renames it, so a reader sees either the old file or the new one.
  // kUnavailable if that fails; nothing is left behind.
  Status Write(const std::string& name, std::string_view content) const;

  struct Entry {
    std::string name;
    std::chrono::system_clock::time_point written;
  };
  // At most `most` names with this ending, in no particular order. Folders are left out.
  std::vector<Entry> List(std::string_view ending, size_t most) const;
  // No error if the name does not exist.
  void Remove(const std::string& name) const;

  // The suffix of a file while it is written. A process that ends meanwhile leaves such a file
  // behind.
  static constexpr std::string_view kPart = ".part";

 private:
  PrivateFolder(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}

  int fd_;
  std::filesystem::path path_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_PRIVATE_FOLDER_H_
