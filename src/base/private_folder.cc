#include "base/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

// Closes its descriptor when destroyed.
class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// 0, or an errno value.
int WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Creates parent folders too. 0, or an errno value.
int MakeFolders(const fs::path& path) {
  if (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return 0;
  const fs::path above = path.parent_path();
  if (errno != ENOENT || above.empty() || above == path) return errno;
  if (const int failed = MakeFolders(above); failed != 0) return failed;
  return ::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

StatusOr<PrivateFolder> PrivateFolder::Open(const fs::path& path) {
  OwnedFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0 && errno == ENOENT) return NotFound("no folder {}", path.string());
  struct stat about {};
  if (folder.get() < 0 || ::fstat(folder.get(), &about) != 0) {
    return Unavailable("cannot open the folder {}: {}", path.string(), std::strerror(errno));
  }
  if (about.st_uid != ::geteuid()) {
    return Unavailable(
        "the folder {} belongs to user {}, and this process is user {}; name another with "
        "XDG_CACHE_HOME",
        path.string(), about.st_uid, ::geteuid());
  }
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0 && ::fchmod(folder.get(), S_IRWXU) != 0 &&
      (about.st_mode & kOthersMayWrite) != 0) {
    return Unavailable("other users may write the folder {}; close it with `chmod 700`",
                       path.string());
  }
  return PrivateFolder(folder.Release(), path);
}

StatusOr<PrivateFolder> PrivateFolder::OpenOrMake(const fs::path& path) {
  if (const int failed = MakeFolders(path); failed != 0) {
    return Unavailable("cannot make the folder {}: {}", path.string(), std::strerror(failed));
  }
  return Open(path);
}

PrivateFolder::PrivateFolder(PrivateFolder&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

PrivateFolder::~PrivateFolder() {
  if (fd_ >= 0) ::close(fd_);
}

StatusOr<std::string> PrivateFolder::Read(const std::string& name, size_t most) const {
  const std::string shown = (path_ / name).string();
  // O_NONBLOCK: opening a pipe would otherwise wait for its writer.
  const OwnedFd file(::openat(fd_, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) return NotFound("no file {}", shown);
  struct stat about {};
  if (file.get() < 0 || ::fstat(file.get(), &about) != 0) {
    return InvalidArgument("cannot open {}: {}", shown, std::strerror(errno));
  }
  if (!S_ISREG(about.st_mode)) return InvalidArgument("{} is not a regular file", shown);
  if (about.st_uid != ::geteuid()) {
    return InvalidArgument("{} belongs to user {}, and this process is user {}", shown,
                           about.st_uid, ::geteuid());
  }
  if (std::cmp_greater(about.st_size, most)) {
    return InvalidArgument("{} has {} bytes; it may have {}", shown, about.st_size, most);
  }
  std::string content(static_cast<size_t>(about.st_size), '\0');
  size_t got = 0;
  while (got < content.size()) {
    const ssize_t more = ::read(file.get(), content.data() + got, content.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return InvalidArgument("cannot read {}: {}", shown, std::strerror(errno));
    if (more == 0) break;
    got += static_cast<size_t>(more);
  }
  content.resize(got);
  return content;
}

Status PrivateFolder::Write(const std::string& name, std::string_view content) const {
  uint64_t random = 0;  // distinguishes writers
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) random = 0;
  const std::string part = fmt::format("{}.{}-{:016x}{}", name, ::getpid(), random, kPart);
  int failed = 0;
  {
    const OwnedFd file(::openat(fd_, part.c_str(),
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                S_IRUSR | S_IWUSR));
    if (file.get() < 0) {
      return Unavailable("cannot write {}: {}", (path_ / name).string(), std::strerror(errno));
    }
    failed = WriteAll(file.get(), content);
  }
  if (failed == 0 && ::renameat(fd_, part.c_str(), fd_, name.c_str()) != 0) failed = errno;
  if (failed == 0) return absl::OkStatus();
  Remove(part);
  return Unavailable("cannot write {}: {}", (path_ / name).string(), std::strerror(failed));
}

std::vector<PrivateFolder::Entry> PrivateFolder::List(std::string_view ending, size_t most) const {
  std::vector<Entry> entries;
  // Opened again, so that this listing has its own position in the folder.
  OwnedFd again(::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (again.get() < 0) return entries;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(again.get()), &::closedir);
  if (folder == nullptr) return entries;
  again.Release();
  while (entries.size() < most) {
    const dirent* const found = ::readdir(folder.get());
    if (found == nullptr) break;
    const std::string_view name = found->d_name;
    struct stat about {};
    if (!name.ends_with(ending) ||
        ::fstatat(fd_, found->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(about.st_mode)) {
      continue;
    }
    const std::chrono::nanoseconds written = std::chrono::seconds(about.st_mtim.tv_sec) +
                                             std::chrono::nanoseconds(about.st_mtim.tv_nsec);
    entries.push_back(
        {std::string(name),
         std::chrono::system_clock::time_point(
             std::chrono::duration_cast<std::chrono::system_clock::duration>(written))});
  }
  return entries;
}

void PrivateFolder::Remove(const std::string& name) const { ::unlinkat(fd_, name.c_str(), 0); }

}  // namespace chairlift
