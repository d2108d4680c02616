// An import that aborts where it depends on how the weights are read.
#ifndef CHAIRLIFT_TESTS_FUZZ_IMPORT_BOTH_WAYS_H_
#define CHAIRLIFT_TESTS_FUZZ_IMPORT_BOTH_WAYS_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "graph/onnx/import.h"

namespace chairlift::fuzz {

// The same constants, bit for bit.
inline bool SameConstants(const Graph& a, const Graph& b) {
  if (a.values.size() != b.values.size()) return false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const Tensor& x = a.values[i].constant;
    const Tensor& y = b.values[i].constant;
    if (x.present() != y.present()) return false;
    if (!x.present()) continue;
    if (x.dtype() != y.dtype() || x.shape() != y.shape()) return false;
    if (x.byte_size() > 0 && std::memcmp(x.raw(), y.raw(), x.byte_size()) != 0) return false;
  }
  return true;
}

// The model, imported with its weights taken from the file and parsed with the rest: which of the
// two must not matter. If a file has several errors, either may be reported.
inline StatusOr<ImportedModel> ImportBothWays(std::span<const std::byte> bytes) {
  auto model = ImportOnnx(bytes, {.detach_from_bytes = 1});
  const auto whole = ImportOnnx(bytes, {.detach_from_bytes = INT64_MAX});
  const bool same = model.status().code() == whole.status().code() &&
                    (!model.ok() || SameConstants(model->graph, whole->graph));
  if (same) return model;
  std::fprintf(stderr, "detached: %s\nwhole: %s\n", model.status().ToString().c_str(),
               whole.status().ToString().c_str());
  std::abort();
}

}  // namespace chairlift::fuzz

#endif  // CHAIRLIFT_TESTS_FUZZ_IMPORT_BOTH_WAYS_H_
