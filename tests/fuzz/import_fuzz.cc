// Any bytes end in a model or an error: import, shape inference, cells, passes, planning.
//
//   build/asan/tests/import_fuzz tests/fuzz/corpus/import -max_total_time=600 -timeout=5
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/import_case.h"
#include "fuzz/proto_mutator.h"
#include "onnx/onnx_pb.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)chairlift::fuzz::ImportCase({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}

// Bytes that are a protobuf message are mostly changed as one, so that the change survives the
// parser.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  onnx::ModelProto model;
  if (seed % 4 != 0 && model.ParseFromArray(data, static_cast<int>(size))) {
    chairlift::fuzz::MutateMessage(model, seed);
    const std::string bytes = model.SerializeAsString();
    if (bytes.size() <= max_size) {
      bytes.copy(reinterpret_cast<char*>(data), bytes.size());
      return bytes.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
