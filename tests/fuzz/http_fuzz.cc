// Fuzzes HTTP framing, routing and the protocol's codec (tests/fuzz/http_case.h).
#include "fuzz/http_case.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chairlift::http::RunHttpCase(data, size);
  return 0;
}
