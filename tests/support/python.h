// The Python that tests run functions with.
#ifndef CHAIRLIFT_TESTS_SUPPORT_PYTHON_H_
#define CHAIRLIFT_TESTS_SUPPORT_PYTHON_H_

#include <stdlib.h>

#include <string>
#include <vector>

namespace chairlift::testing {

// An interpreter that has numpy; empty: there is none here. `make test` has one in .venv.
inline std::string PythonWithNumpy(const std::string& source_folder) {
  std::vector<std::string> candidates = {source_folder + "/.venv/bin/python", "python3"};
  if (const char* const named = getenv("CHAIRLIFT_PYTHON"); named != nullptr) {
    candidates.insert(candidates.begin(), named);
  }
  for (const std::string& python : candidates) {
    if (system((python + " -c 'import numpy' 2> /dev/null").c_str()) == 0) return python;
  }
  return {};
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_SUPPORT_PYTHON_H_
