// From an ONNX file to a verified graph with shapes.
#include "graph/onnx/import.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "graph/onnx/graph_reader.h"
#include "onnx/onnx_pb.h"

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

}  // namespace

StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size > options.max_model_bytes || size > kMaxProtobufBytes) {
    return ResourceExhausted("the model has {} bytes, more than the limit of {}", size,
                             std::min(options.max_model_bytes, kMaxProtobufBytes));
  }
  onnx::ModelProto model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(size))) {
    return InvalidArgument("not an ONNX model: the protobuf message is truncated or malformed");
  }
  return FromProto(model, options);
}

StatusOr<ImportedModel> ImportOnnxFile(const std::filesystem::path& path) {
  const ImportOptions options{.external_data_dir =
                                  path.has_parent_path() ? path.parent_path() : "."};
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return NotFound("'{}': {}", path.string(), std::strerror(errno));
  google::protobuf::io::FileInputStream stream(descriptor);
  stream.SetCloseOnDelete(true);
  struct stat stat = {};
  if (fstat(descriptor, &stat) != 0 || !S_ISREG(stat.st_mode)) {
    return InvalidArgument("'{}' is not a regular file", path.string());
  }
  if (stat.st_size > options.max_model_bytes || stat.st_size > kMaxProtobufBytes) {
    return ResourceExhausted(
        "'{}' has {} bytes, more than the limit of {}; larger models keep "
        "their weights in external data",
        path.string(), static_cast<int64_t>(stat.st_size),
        std::min(options.max_model_bytes, kMaxProtobufBytes));
  }
  onnx::ModelProto model;
  if (!model.ParseFromZeroCopyStream(&stream)) {
    return InvalidArgument(
        "'{}' is not an ONNX model: the protobuf message is truncated or "
        "malformed",
        path.string());
  }
  auto imported = FromProto(model, options);
  if (!imported.ok()) return Annotate(imported.status(), fmt::format("'{}'", path.string()));
  return imported;
}

}  // namespace chairlift
