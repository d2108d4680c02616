// One input of the import fuzzer, also replayed from the kept corpus by a test.
#ifndef CHAIRLIFT_TESTS_FUZZ_IMPORT_CASE_H_
#define CHAIRLIFT_TESTS_FUZZ_IMPORT_CASE_H_

#include <cstddef>
#include <span>
#include <utility>

#include "fuzz/import_both_ways.h"
#include "graph/cells/sliced_model.h"
#include "runtime/executable.h"

namespace chairlift::fuzz {

// Imports the bytes and, where they are a model, cuts it into cells and makes an executable.
// Returns how it ended.
inline Status ImportCase(std::span<const std::byte> bytes) {
  auto model = ImportBothWays(bytes);
  if (!model.ok()) return model.status();
  (void)SliceIntoCells(model->graph, {.max_folded_embedding_bytes = 1 << 20});
  return Executable::Create(std::move(model->graph), {}).status();
}

}  // namespace chairlift::fuzz

#endif  // CHAIRLIFT_TESTS_FUZZ_IMPORT_CASE_H_
