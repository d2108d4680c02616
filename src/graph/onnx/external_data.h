// Reading the bytes of tensors that are stored in files beside the model.
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

// Where the external data of a model may lie: in the folder of its file or, if that file is a link,
// also in the folder or the cache that the link leads to. The folder is held open, so that a
// rename during a load changes nothing. Copies share it.
class DataFolder {
 public:
  DataFolder() = default;  // there is none
  // If the folder cannot be opened, each use of it says why.
  DataFolder(const std::filesystem::path& folder);  // NOLINT(google-explicit-constructor)

  // A file of the folder by its name, as a path that leads to it through the open folder.
  std::filesystem::path PathOf(const std::filesystem::path& name) const;
  // `model_file` is where the model's file really lies.
  void AllowStoreOf(const std::filesystem::path& model_file);

 private:
  struct Opened;
  friend struct DataFile;
  std::shared_ptr<const Opened> opened_;
  std::filesystem::path store_;  // absolute, without links; empty: none
};

// Fills `destination` (range.bytes) from the file. Refuses a location that is absolute or has
// "..", a file that really lies elsewhere than `folder` allows or is no regular file, and a range
// outside the file; nothing is read then.
Status ReadExternalData(const DataFolder& folder, const ExternalDataRange& range,
                        void* destination);
// The same checks without reading: call it before allocating what a model says it needs.
Status CheckExternalData(const DataFolder& folder, const ExternalDataRange& range);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_EXTERNAL_DATA_H_
