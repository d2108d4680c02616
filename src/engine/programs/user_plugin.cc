#include "engine/programs/user_plugin.h"

#include <dlfcn.h>

#include <string>
#include <system_error>
#include <vector>

#include "engine/programs/model_files.h"

namespace chairlift {
namespace {

// The last error of dlopen() or dlsym().
std::string LoaderError() {
  const char* error = dlerror();
  return error == nullptr ? "no reason was given" : error;
}

}  // namespace

std::filesystem::path FolderOfModel(const std::filesystem::path& version) {
  std::error_code error;
  const std::vector<std::filesystem::path> folders = FoldersOfModel(version);
  for (const std::filesystem::path& folder : folders) {
    for (const char* settings : {"model.yaml", "config.pbtxt"}) {
      if (std::filesystem::exists(folder / settings, error)) return folder;
    }
  }
  return folders.size() > 1 ? folders.back() : folders.back().parent_path();
}

StatusOr<const void*> FindUserSymbol(const std::filesystem::path& library, const char* symbol,
                                     const char* macro) {
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return InvalidArgument("it cannot be loaded: {}", LoaderError());
  const void* found = dlsym(loaded, symbol);
  if (found == nullptr) {
    return InvalidArgument("it is not a plugin of this kind ({}): {}", macro, LoaderError());
  }
  return found;
}

}  // namespace chairlift
