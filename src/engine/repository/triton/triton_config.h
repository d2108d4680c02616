// Triton's model configuration, config.pbtxt.
//
// Field names and meanings: Triton Inference Server, "Model Configuration". Support of each field:
// triton_fields.h.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_CONFIG_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_CONFIG_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/repository/model_folder.h"

namespace chairlift {

// Parses the text of <folder>/config.pbtxt. `folder` is the model's and has the files of warm-up
// inputs; the model's name must be `name`. kInvalidArgument: the text is invalid, with line and
// column; kUnimplemented: a model of another backend.
StatusOr<FolderConfig> ParseTritonConfig(const std::string& text,
                                         const std::filesystem::path& folder);
// The same from JSON, as sent by clients.
StatusOr<FolderConfig> ParseTritonJson(const std::string& json,
                                       const std::filesystem::path& folder);

// The backend for a file of Triton's other backends in a version's folder: "PyTorch" for model.pt.
// Empty if there is none.
std::string_view OtherBackend(const std::filesystem::path& version);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_CONFIG_H_
