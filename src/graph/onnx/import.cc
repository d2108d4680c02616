// From an ONNX file to a verified graph with shapes.
#include "graph/onnx/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/onnx/file.h"
#include "graph/onnx/graph_reader.h"
#include "onnx/onnx_pb.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

// protobuf itself counts in int.
constexpr int64_t kMaxProtobufBytes = std::numeric_limits<int>::max();

StatusOr<ImportedModel> FromProto(onnx::ModelProto& model, const ImportOptions& options) {
  if (!model.has_graph()) return InvalidArgument("not an ONNX model: it holds no graph");
  if (model.training_info_size() > 0) {
    return Unimplemented("the model holds training information, which is not supported");
  }
  ImportedModel out;
  CHAIRLIFT_ASSIGN_OR_RETURN(out.graph, ReadGraph(model, options.external_data_dir, &out.opset));
  CHAIRLIFT_RETURN_IF_ERROR(Verify(out.graph));
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(out.graph));
  CHAIRLIFT_RETURN_IF_ERROR(Verify(out.graph));
  out.producer = model.producer_name();
  if (!model.producer_version().empty()) out.producer += " " + model.producer_version();
  for (const auto& entry : model.metadata_props()) out.metadata[entry.key()] = entry.value();
  return out;
}

Status CheckSize(int64_t size, const ImportOptions& options) {
  const int64_t limit = std::min(options.max_model_bytes, kMaxProtobufBytes);
  if (size <= limit) return absl::OkStatus();
  return ResourceExhausted(
      "the model has {} bytes, more than the limit of {}; larger models keep their weights in "
      "external data",
      size, limit);
}

Status Parse(const void* bytes, size_t size, onnx::ModelProto& model) {
  if (model.ParseFromArray(bytes, static_cast<int>(size))) return absl::OkStatus();
  return InvalidArgument("not an ONNX model: the protobuf message is truncated or malformed");
}

Status ParseFile(const std::filesystem::path& path, const ImportOptions& options,
                 onnx::ModelProto& model) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const File file, File::Open(path));
  CHAIRLIFT_RETURN_IF_ERROR(CheckSize(file.size(), options));
  // Not mapped: a file that shrinks while it is mapped would end the process.
  Tensor bytes = HugeTensor(DType::kUInt8, Shape{file.size()});
  CHAIRLIFT_RETURN_IF_ERROR(file.Read(/*offset=*/0, file.size(), bytes.raw()));
  return Parse(bytes.raw(), bytes.byte_size(), model);
}

}  // namespace

StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckSize(static_cast<int64_t>(bytes.size()), options));
  onnx::ModelProto model;
  CHAIRLIFT_RETURN_IF_ERROR(Parse(bytes.data(), bytes.size(), model));
  return FromProto(model, options);
}

StatusOr<ImportedModel> ImportOnnxFile(const std::filesystem::path& path) {
  const ImportOptions options{.external_data_dir =
                                  path.has_parent_path() ? path.parent_path() : "."};
  onnx::ModelProto model;
  CHAIRLIFT_RETURN_IF_ERROR(
      Annotate(ParseFile(path, options, model), fmt::format("'{}'", path.string())));
  auto imported = FromProto(model, options);
  if (!imported.ok()) return Annotate(imported.status(), fmt::format("'{}'", path.string()));
  return imported;
}

}  // namespace chairlift
