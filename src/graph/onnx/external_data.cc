// Reading the bytes of tensors that are stored in files beside the model.
#include "graph/onnx/external_data.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "graph/onnx/file.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

// A file that was found but not opened for reading: it can no longer be replaced by another.
class FoundFile {
 public:
  explicit FoundFile(int descriptor) : descriptor_(descriptor) {}
  ~FoundFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FoundFile(const FoundFile&) = delete;
  FoundFile& operator=(const FoundFile&) = delete;
  int descriptor() const { return descriptor_; }
  bool found() const { return descriptor_ >= 0; }
  // The path by which the system refers to it.
  std::string Link() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  const int descriptor_;
};

bool Inside(const fs::path& folder, const fs::path& file) {
  return !folder.empty() &&
         std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first ==
             folder.end();
}

// For a file in a cache that spreads its files over folders by hash: the cache. Otherwise the
// file's folder.
fs::path StoreOf(const fs::path& file) {
  constexpr std::string_view kSpread[] = {"/.git/annex/objects/", "/.dvc/cache/", "/files/md5/"};
  const std::string text = file.string();
  for (const std::string_view cache : kSpread) {
    const size_t at = text.rfind(cache);
    if (at != std::string::npos) return text.substr(0, at + cache.size() - 1);
  }
  return file.parent_path();
}

// "; the folder has model.onnx.data": what may be meant by a file that is missing.
std::string DataFilesIn(const fs::path& folder) {
  constexpr size_t kMost = 3, kMostEntries = 1000;
  std::vector<std::string> names;
  size_t seen = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && seen < kMostEntries;
       it.increment(error), ++seen) {
    const std::string name = it->path().filename().string();
    if (name.ends_with("data") || name.ends_with(".bin")) names.push_back(name);
  }
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  if (names.size() > kMost) names.resize(kMost);
  return fmt::format("; the folder has {}", fmt::join(names, ", "));
}

}  // namespace

struct DataFolder::Opened {
  explicit Opened(const fs::path& folder)
      : name(folder.string()), file(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (!file.found()) {
      why = std::strerror(errno);
      return;
    }
    std::error_code error;
    real = fs::read_symlink(file.Link(), error);
    if (error) why = fmt::format("/proc, which is needed, cannot be read: {}", error.message());
  }

  const std::string name;  // as given
  const FoundFile file;
  fs::path real;    // absolute, without links
  std::string why;  // why it cannot be used; empty if it can
};

DataFolder::DataFolder(const fs::path& folder)
    : opened_(folder.empty() ? nullptr : std::make_shared<const Opened>(folder)) {}

fs::path DataFolder::PathOf(const fs::path& name) const {
  if (opened_ == nullptr) return name;
  return fs::path(opened_->why.empty() ? opened_->file.Link() : opened_->name) / name;
}

void DataFolder::AllowStoreOf(const fs::path& model_file) {
  if (opened_ == nullptr || model_file.parent_path() == opened_->real) return;
  const fs::path store = StoreOf(model_file);
  if (store != store.root_path()) store_ = store;
}

struct DataFile {
  static StatusOr<File> Open(const DataFolder& folder, const ExternalDataRange& range) {
    const std::string& location = range.location;
    if (folder.opened_ == nullptr) {
      return InvalidArgument("external data '{}' cannot be read: the model has no folder",
                             location);
    }
    const DataFolder::Opened& opened = *folder.opened_;
    if (!opened.why.empty()) return NotFound("model folder '{}': {}", opened.name, opened.why);
    const fs::path relative(location);
    if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute()) {
      return InvalidArgument("external data location '{}' is not a relative path", location);
    }
    if (std::find(relative.begin(), relative.end(), "..") != relative.end()) {
      return InvalidArgument("external data location '{}' leaves the model's folder", location);
    }
    // Checked before it is opened, because opening a device may have side effects.
    const FoundFile file(::openat(opened.file.descriptor(), location.c_str(), O_PATH | O_CLOEXEC));
    struct stat stat = {};
    if (!file.found() || ::fstat(file.descriptor(), &stat) != 0) {
      const std::string why = std::strerror(errno);
      return NotFound(
          "external data '{}': {}; the model keeps weights in this file, which belongs beside the "
          "model's under this name{}",
          location, why, DataFilesIn(opened.real));
    }
    std::error_code error;
    const fs::path real = fs::read_symlink(file.Link(), error);
    if (error || !(Inside(opened.real, real) || Inside(folder.store_, real))) {
      return InvalidArgument(
          "external data location '{}' leads out of the model's folder: weights may lie there or, "
          "if the model's file is a link too, in the folder that it leads to",
          location);
    }
    if (!S_ISREG(stat.st_mode)) {
      return InvalidArgument("external data '{}': is not a regular file", location);
    }
    auto read = File::Open(file.Link());
    if (!read.ok()) return Annotate(read.status(), fmt::format("external data '{}'", location));
    if (range.offset < 0 || range.bytes < 0 || range.offset > read->size() ||
        range.bytes > read->size() - range.offset) {
      return InvalidArgument(
          "external data '{}': the model needs {} bytes at offset {}, but the file has {}; "
          "download "
          "it again, or run `git lfs pull` if it is Git LFS's pointer",
          location, range.bytes, range.offset, read->size());
    }
    return read;
  }
};

Status CheckExternalData(const DataFolder& folder, const ExternalDataRange& range) {
  return DataFile::Open(folder, range).status();
}

Status ReadExternalData(const DataFolder& folder, const ExternalDataRange& range,
                        void* destination) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const File file, DataFile::Open(folder, range));
  return Annotate(file.Read(range.offset, range.bytes, destination),
                  fmt::format("external data '{}'", range.location));
}

}  // namespace chairlift
