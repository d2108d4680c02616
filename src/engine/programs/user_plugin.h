// Users' shared libraries, which run as part of this process.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_USER_PLUGIN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_USER_PLUGIN_H_

#include <exception>
#include <filesystem>

#include "base/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

// Runs user code that returns a Status or StatusOr: an exception becomes kInternal.
template <typename F>
auto GuardUserCode(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return Internal("the plugin threw an exception: {}", error.what());
  } catch (...) {
    return Internal("the plugin threw a value that is not a std::exception");
  }
}

// The folder of a model that contains this version's folder.
std::filesystem::path FolderOfModel(const std::filesystem::path& version);

// The address of a symbol in a library, which stays loaded. InvalidArgument if it cannot be loaded
// or has no such symbol; `macro` is what would define it.
StatusOr<const void*> FindUserSymbol(const std::filesystem::path& library, const char* symbol,
                                     const char* macro);

// The description that a library exports: the interface's `Plugin` (chairlift/unfold.h).
template <typename Plugin>
StatusOr<const Plugin*> OpenUserPlugin(const std::filesystem::path& library, const char* symbol,
                                       const char* macro) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const void* found, FindUserSymbol(library, symbol, macro));
  const auto* plugin = static_cast<const Plugin*>(found);
  if (plugin->abi != Plugin::kAbi) {
    return InvalidArgument("it was built for version {} of the interface; this is version {}",
                           plugin->abi, Plugin::kAbi);
  }
  if (plugin->tensor_bytes != sizeof(Tensor)) {
    return InvalidArgument(
        "it was built with other libraries: a tensor has {} bytes there, {} here",
        plugin->tensor_bytes, sizeof(Tensor));
  }
  return plugin;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_USER_PLUGIN_H_
