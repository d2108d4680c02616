// Fuzzes what a worker of a function may say (tests/fuzz/worker_case.h).
#include "fuzz/worker_case.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chairlift::RunWorkerCase(data, size);
  return 0;
}
