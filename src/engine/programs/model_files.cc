#include "engine/programs/model_files.h"

#include <algorithm>
#include <system_error>

namespace chairlift {

namespace fs = std::filesystem;

bool IsVersion(const std::string& text) {
  constexpr size_t kMaxVersionDigits = 18;
  return !text.empty() && text.size() <= kMaxVersionDigits && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<fs::path> FoldersOfModel(const fs::path& folder) {
  std::error_code error;
  fs::path whole = fs::absolute(folder.empty() ? "." : folder, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // it ended in a slash
  std::vector<fs::path> folders = {whole};
  if (folders.back().filename() == kOnnxFolder) folders.push_back(folders.back().parent_path());
  if (IsVersion(folders.back().filename().string())) {
    folders.push_back(folders.back().parent_path());
  }
  return folders;
}

fs::path FileOfModel(const fs::path& folder, const std::string& name) {
  for (const fs::path& one : FoldersOfModel(folder)) {
    std::error_code error;
    if (fs::exists(one / name, error)) return one / name;
  }
  return folder / name;
}

}  // namespace chairlift
