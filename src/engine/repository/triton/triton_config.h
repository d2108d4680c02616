// Triton's model configuration, config.pbtxt.
//
// Field names and meanings: Triton Inference Server, "Model Configuration". What each field does
// here: triton_fields.h.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_CONFIG_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_CONFIG_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/repository/model_folder.h"

namespace chairlift {

// Parses the text of <folder>/config.pbtxt; `folder` is the model's, whose name `name` must be, and
// holds the files of warm-up inputs. kInvalidArgument: the text is wrong, with line and column;
// kUnimplemented: a model of another backend.
StatusOr<FolderConfig> ParseTritonConfig(const std::string& text,
                                         const std::filesystem::path& folder);
// The same from JSON, as clients bring it.
StatusOr<FolderConfig> ParseTritonJson(const std::string& json,
                                       const std::filesystem::path& folder);

// What serves the file that Triton's other backends would look for in a version's folder: "PyTorch"
// for model.pt. Empty where the folder has none of them.
std::string_view OtherBackend(const std::filesystem::path& version);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_CONFIG_H_
