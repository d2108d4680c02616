// A regular file, opened for reading.
#ifndef CHAIRLIFT_GRAPH_ONNX_FILE_H_
#define CHAIRLIFT_GRAPH_ONNX_FILE_H_

#include <cstdint>
#include <filesystem>

#include "base/status.h"

namespace chairlift {

// Move-only; closes the file. Thread-safe.
class File {
 public:
  // NotFound if it cannot be opened; InvalidArgument if it is not a regular file (a directory, a
  // pipe, a device). Does not block.
  static StatusOr<File> Open(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File& operator=(File&&) = delete;

  int64_t size() const { return size_; }  // bytes, when it was opened
  // The real path of the opened file: absolute, without links. Empty if the system does not provide
  // it.
  std::filesystem::path RealPath() const;
  // Fills `destination` with [offset, offset + bytes). Unavailable if the file ends before.
  Status Read(int64_t offset, int64_t bytes, void* destination) const;

 private:
  File(int descriptor, int64_t size) : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  int64_t size_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_FILE_H_
