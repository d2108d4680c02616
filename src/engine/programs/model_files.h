// Where the files of a model may be: beside its ONNX file or in a folder above.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_MODEL_FILES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_MODEL_FILES_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace chairlift {

// The folder of ONNX files in a Hugging Face repository; its other files are above it.
inline constexpr std::string_view kOnnxFolder = "onnx";

// Whether a folder's name is a version number: "1", "12".
bool IsVersion(const std::string& text);

// The folders with files of the model whose ONNX file is in `folder`, nearest first, as absolute
// paths. They are this folder, its parent if this one is named `onnx`, and the next parent if the
// last of these is a version's folder.
std::vector<std::filesystem::path> FoldersOfModel(const std::filesystem::path& folder);

// The path of `name` in the first of these folders that has it; otherwise in `folder`.
std::filesystem::path FileOfModel(const std::filesystem::path& folder, const std::string& name);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_MODEL_FILES_H_
