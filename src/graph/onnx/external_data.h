// Reads the bytes of tensors that are stored in files beside the model.
#ifndef CHAIRLIFT_GRAPH_ONNX_EXTERNAL_DATA_H_
#define CHAIRLIFT_GRAPH_ONNX_EXTERNAL_DATA_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/status.h"

namespace chairlift {

struct ExternalDataRange {
  std::string location;  // as in the model: relative to the model's folder
  int64_t offset = 0;    // bytes
  int64_t bytes = 0;
};

// The allowed places of a model's external data: the folder of its file or, if that file is a link,
// also the folder or the cache that the link leads to. The folder stays open, so renaming it during
// a load changes nothing. Copies share it.
class DataFolder {
 public:
  DataFolder() = default;  // no folder
  // If the folder cannot be opened, each use of it reports the reason.
  DataFolder(const std::filesystem::path& folder);  // NOLINT(google-explicit-constructor)

  // The path of a file in the folder, through the open folder.
  std::filesystem::path PathOf(const std::filesystem::path& name) const;
  // `model_file` is the real path of the model's file.
  void AllowStoreOf(const std::filesystem::path& model_file);

 private:
  struct Opened;
  friend struct DataFile;
  std::shared_ptr<const Opened> opened_;
  std::filesystem::path store_;  // absolute, without links; empty: none
};

// Fills `destination` (range.bytes) from the file. Refuses a location that is absolute or has "..",
// a file whose real path is not allowed by `folder` or that is not a regular file, and a range
// outside the file. In these cases nothing is read.
Status ReadExternalData(const DataFolder& folder, const ExternalDataRange& range,
                        void* destination);
// The same checks without reading. Call it before allocating the size that a model claims.
Status CheckExternalData(const DataFolder& folder, const ExternalDataRange& range);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_EXTERNAL_DATA_H_
