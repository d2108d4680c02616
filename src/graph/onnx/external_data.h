// Reading the bytes of tensors that are stored in files beside the model.
#ifndef CHAIRLIFT_GRAPH_ONNX_EXTERNAL_DATA_H_
#define CHAIRLIFT_GRAPH_ONNX_EXTERNAL_DATA_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/status.h"

namespace chairlift {

struct ExternalDataRange {
  std::string location;  // as in the model: relative to the model's folder
  int64_t offset = 0;    // bytes
  int64_t bytes = 0;
};

// Fills `destination` (range.bytes) from the file. Refuses a location that is absolute, leaves
// `folder` by ".." or by a symbolic link, or is no regular file, and a range outside the file;
// nothing is read then. An empty `folder` refuses everything.
Status ReadExternalData(const std::filesystem::path& folder, const ExternalDataRange& range,
                        void* destination);
// The same checks without reading: call it before allocating what a model says it needs.
Status CheckExternalData(const std::filesystem::path& folder, const ExternalDataRange& range);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_EXTERNAL_DATA_H_
