// Imports an ONNX file as a verified graph with shapes.
#ifndef CHAIRLIFT_GRAPH_ONNX_IMPORT_H_
#define CHAIRLIFT_GRAPH_ONNX_IMPORT_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace chairlift {

struct ImportedModel {
  Graph graph;
  int opset = 0;         // of the default domain
  std::string producer;  // "pytorch 2.1"
  // For a model with random operators: an added input of the graph for the request's seeds
  // (ops/generation/random.h), which clients do not send. Otherwise empty.
  std::string seeds;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> notes;  // sentences on what differs from the file
};

struct ImportOptions {
  // The folder of external data; empty: external data is refused. Names that leave this folder are
  // refused.
  std::filesystem::path external_data_dir = {};
  int64_t max_model_bytes = int64_t{8} << 30;
  // Weights of at least this many bytes are kept out of the protobuf messages.
  int64_t detach_from_bytes = 64 << 10;
};

// Parses (opsets 1 to 28), normalises to the newest form, verifies and infers shapes. The input is
// untrusted: any file results in a model or a Status within a second, and without allocating more
// than a small multiple of its size. Unknown operators are refused; the error has the node,
// operator, domain and opset.
StatusOr<ImportedModel> ImportOnnxFile(const std::filesystem::path& path);
StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> bytes, const ImportOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_IMPORT_H_
