// What a folder has in place of a model, for errors.
#include "engine/repository/folder_contents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/repository/model_folder.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 400;
constexpr int kMostDepth = 4;
constexpr size_t kMostListed = 5;

// Files of other frameworks, by the ends of their names.
constexpr std::pair<const char*, const char*> kFrameworks[] = {
    {".safetensors", "weights without a graph"},
    {"pytorch_model.bin", "a PyTorch checkpoint"},
    {".pt", "a PyTorch file"},
    {".pth", "a PyTorch file"},
    {".pt2", "a PyTorch file"},
    {".gguf", "a GGUF file of llama.cpp"},
    {".h5", "a Keras file"},
    {".keras", "a Keras file"},
    {".pb", "a TensorFlow file"},
    {".tflite", "a TensorFlow Lite file"},
    {".plan", "a TensorRT engine"},
    {".engine", "a TensorRT engine"},
    {".mlmodel", "a Core ML file"},
    {".pkl", "a Python pickle"},
    {".joblib", "a scikit-learn file"}};

// The files below a folder, in order, and the names of its own entries. Links to folders are not
// followed.
struct Contents {
  std::vector<fs::path> files;
  std::vector<std::string> own;
};
Contents ContentsOf(const fs::path& folder) {
  Contents found;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  for (size_t seen = 0; !error && it != fs::recursive_directory_iterator() && seen < kMostEntries;
       ++seen) {
    if (it.depth() == 0) found.own.push_back(it->path().filename().string());
    if (it.depth() >= kMostDepth) it.disable_recursion_pending();
    std::error_code ignored;
    if (!it->is_directory(ignored)) found.files.push_back(it->path());
    it.increment(error);
  }
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.own.begin(), found.own.end());
  return found;
}

// Whether the name looks like that of a version but is not a number: "v1", "version_2".
bool IsLikeVersion(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.back())) != 0 &&
         (name[0] == 'v' || name[0] == 'V');
}

std::string WhatToDoWith(const fs::path& file) {
  if (file.filename() != kModelFile) {
    return fmt::format("serve {} itself, name it model.onnx, or set `file` in model.yaml",
                       file.string());
  }
  const fs::path folder = file.parent_path();
  if (IsLikeVersion(folder.filename().string())) {
    return fmt::format("versions are numbers: rename the folder {}, as 1",
                       folder.filename().string());
  }
  return fmt::format("serve {}", FoldersOfModel(folder).back().string());
}

}  // namespace

std::string WhatFolderHas(const fs::path& folder) {
  const Contents contents = ContentsOf(folder);
  if (contents.own.empty()) return "; it is empty";
  std::vector<std::string> models;
  for (const fs::path& file : contents.files) {
    if (file.extension() == ".onnx") models.push_back(file.string());
  }
  if (!models.empty()) {
    const fs::path first = models[0];
    const bool more = models.size() > kMostListed;
    if (more) models.resize(kMostListed);
    return fmt::format("; it has {}{}: {}", fmt::join(models, ", "), more ? ", …" : "",
                       WhatToDoWith(first));
  }
  for (const auto& [ending, is] : kFrameworks) {
    for (const fs::path& file : contents.files) {
      if (!file.filename().string().ends_with(ending)) continue;
      return fmt::format(
          "; it has {}, {}: only ONNX models are served, so export it "
          "(docs/reference/exporters.md)",
          file.string(), is);
    }
  }
  std::vector<std::string> own = contents.own;
  const bool more = own.size() > kMostListed;
  if (more) own.resize(kMostListed);
  return fmt::format("; it has only: {}{}", fmt::join(own, ", "), more ? ", …" : "");
}

}  // namespace chairlift
