// Where the files of a model may lie: beside its ONNX file or in a folder above.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_MODEL_FILES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_MODEL_FILES_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace chairlift {

// The folder of ONNX files in a repository of Hugging Face's hub; its other files lie above.
inline constexpr std::string_view kOnnxFolder = "onnx";

// A number, as a folder's name: "1", "12".
bool IsVersion(const std::string& text);

// The folders with files of the model whose ONNX file lies in `folder`, the nearest first: this
// one; the one above, if this is named `onnx`; and the one above that, if that is a version's.
// Absolute.
std::vector<std::filesystem::path> FoldersOfModel(const std::filesystem::path& folder);

// Where `name` lies in the first of these that has it; else where it would lie in `folder`.
std::filesystem::path FileOfModel(const std::filesystem::path& folder, const std::string& name);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_MODEL_FILES_H_
