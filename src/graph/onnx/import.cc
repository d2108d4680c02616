// Imports an ONNX file as a verified graph with shapes.
#include "graph/onnx/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "graph/onnx/detach_weights.h"
#include "graph/onnx/external_data.h"
#include "graph/onnx/file.h"
#include "graph/onnx/graph_reader.h"
#include "graph/onnx/other_formats.h"
#include "graph/quantized_masks.h"
#include "graph/specialise.h"
#include "onnx/onnx_pb.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

// protobuf itself uses int.
constexpr int64_t kMaxProtobufBytes = std::numeric_limits<int>::max();

StatusOr<ImportedModel> FromProto(onnx::ModelProto& model, const DetachedWeights& weights,
                                  const DataFolder& folder) {
  if (model.training_info_size() > 0) {
    return Unimplemented("the model holds training information, which is not supported");
  }
  ImportedModel out;
  CHAIRLIFT_RETURN_IF_ERROR(ReadGraph(model, weights, folder, &out));
  CHAIRLIFT_RETURN_IF_ERROR(Verify(out.graph));
  CHAIRLIFT_RETURN_IF_ERROR(InferTakenBranches(out.graph));
  JoinQuantizedMasks(out.graph);
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

// The error for a file that is not an ONNX model. Its beginning shows what it is instead.
Status NotOnnx(int64_t size, const ReadAt& read, bool has_no_graph) {
  std::string head(static_cast<size_t>(std::min(size, kFormatBytes)), '\0');
  CHAIRLIFT_RETURN_IF_ERROR(read(/*offset=*/0, std::ssize(head), head.data()));
  return InvalidArgument("{}", OtherFormat(head, size, has_no_graph));
}

bool Parse(const void* bytes, size_t size, onnx::ModelProto& model) {
  return model.ParseFromArray(bytes, static_cast<int>(size));
}

StatusOr<ImportedModel> Import(int64_t size, const ReadAt& read, const ImportOptions& options,
                               const DataFolder& folder) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckSize(size, options));
  onnx::ModelProto model;
  DetachedWeights weights;
  CHAIRLIFT_ASSIGN_OR_RETURN(std::optional<std::string> rest,
                             DetachWeights(size, options.detach_from_bytes, read, &weights));
  if (rest.has_value()) {
    if (!Parse(rest->data(), rest->size(), model)) return NotOnnx(size, read, false);
    rest.reset();
  } else {
    // Not mapped: if a mapped file shrinks, the process crashes.
    const Tensor bytes = HugeTensor(DType::kUInt8, Shape{size});
    CHAIRLIFT_RETURN_IF_ERROR(read(/*offset=*/0, size, const_cast<void*>(bytes.raw())));
    if (!Parse(bytes.raw(), bytes.byte_size(), model)) return NotOnnx(size, read, false);
  }
  if (!model.has_graph()) return NotOnnx(size, read, true);
  return FromProto(model, weights, folder);
}

}  // namespace

StatusOr<ImportedModel> ImportOnnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  const auto read = [bytes](int64_t offset, int64_t count, void* destination) {
    const auto part = bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(count));
    std::copy(part.begin(), part.end(), static_cast<std::byte*>(destination));
    return absl::OkStatus();
  };
  return Import(std::ssize(bytes), read, options, options.external_data_dir);
}

StatusOr<ImportedModel> ImportOnnxFile(const std::filesystem::path& path) {
  const auto import = [&]() -> StatusOr<ImportedModel> {
    DataFolder folder(path.has_parent_path() ? path.parent_path() : ".");
    const std::filesystem::path opened = folder.PathOf(path.filename());
    CHAIRLIFT_ASSIGN_OR_RETURN(const File file, File::Open(opened));
    folder.AllowStoreOf(file.RealPath());
    const auto read = [&file](int64_t offset, int64_t bytes, void* destination) {
      return file.Read(offset, bytes, destination);
    };
    CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel model, Import(file.size(), read, {}, folder));
    std::error_code error;
    if (!std::filesystem::is_symlink(opened, error)) return model;
    // A volume may have been updated meanwhile: the weights would belong to another model.
    CHAIRLIFT_ASSIGN_OR_RETURN(const File now, File::Open(opened));
    if (now.RealPath() != file.RealPath()) {
      return Unavailable("it is a link that was changed while the model was read: load it again");
    }
    return model;
  };
  auto imported = import();
  if (!imported.ok()) return Annotate(imported.status(), fmt::format("'{}'", path.string()));
  return imported;
}

}  // namespace chairlift
