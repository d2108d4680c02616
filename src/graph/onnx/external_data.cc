// Reading the bytes of tensors that are stored in files beside the model.
#include "graph/onnx/external_data.h"

#include <algorithm>
#include <system_error>

#include "graph/onnx/file.h"

namespace chairlift {
namespace {

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
  auto file = File::Open(path);
  if (!file.ok()) return Annotate(file.status(), fmt::format("external data '{}'", location));
  if (range.offset < 0 || range.bytes < 0 || range.offset > file->size() ||
      range.bytes > file->size() - range.offset) {
    return InvalidArgument(
        "external data '{}': {} bytes at offset {} are beyond its {} bytes; is it whole, or Git "
        "LFS's pointer to it?",
        location, range.bytes, range.offset, file->size());
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
  return Annotate(file.Read(range.offset, range.bytes, destination),
                  fmt::format("external data '{}'", range.location));
}

}  // namespace chairlift
