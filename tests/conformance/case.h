// One case of the ONNX project's backend test data: a model with inputs and expected outputs.
#ifndef CHAIRLIFT_TESTS_CONFORMANCE_CASE_H_
#define CHAIRLIFT_TESTS_CONFORMANCE_CASE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace chairlift::conformance {

struct Case {
  std::string name;  // "node/test_abs": data set and folder
  std::filesystem::path folder;
};

// Every folder <root>/<set>/<case> that holds a model.onnx, of the sets that come with their
// models, sorted by name.
std::vector<Case> FindCases(const std::filesystem::path& root);

// Imports the model, runs it on every test_data_set_* and compares. OK where all outputs agree;
// otherwise the first thing that went wrong.
Status RunCase(const Case& test);

}  // namespace chairlift::conformance

#endif  // CHAIRLIFT_TESTS_CONFORMANCE_CASE_H_
