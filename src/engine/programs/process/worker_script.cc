#include "engine/programs/process/worker_script.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "base/status.h"

namespace chairlift {

namespace fs = std::filesystem;

StatusOr<fs::path> FindWorkerScript() {
  std::vector<fs::path> places;
  if (const char* const named = std::getenv("CHAIRLIFT_WORKER"); named != nullptr) {
    places.emplace_back(named);
  } else {
    Dl_info own{};
    std::error_code error;
    if (::dladdr(reinterpret_cast<const void*>(&FindWorkerScript), &own) != 0 &&
        own.dli_fname != nullptr) {
      // A program found in PATH has no path here.
      fs::path file = fs::path(own.dli_fname).has_parent_path() ? fs::path(own.dli_fname)
                                                                : fs::path("/proc/self/exe");
      file = fs::canonical(file, error);
      places.push_back(file.parent_path() / "_worker.py");
      places.push_back(file.parent_path().parent_path() / "share/chairlift/_worker.py");
    }
    places.emplace_back(CHAIRLIFT_WORKER_SOURCE);
  }
  std::vector<std::string> tried;
  for (const fs::path& place : places) {
    std::error_code error;
    if (fs::is_regular_file(place, error)) return place;
    tried.push_back(place.string());
  }
  return NotFound("the workers' program is not where it should be ({}); CHAIRLIFT_WORKER names it",
                  fmt::join(tried, ", "));
}

}  // namespace chairlift
