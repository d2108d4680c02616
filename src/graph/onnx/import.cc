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
  if (!model.has_graph()) return InvalidArgument("not an ONNX model: it holds no graph");
  if (model.training_info_size() > 0) {
    return Unimplemented("the model holds training information, which is not supported");
  }
  ImportedModel out;
  CHAIRLIFT_ASSIGN_OR_RETURN(out.graph, ReadGraph(model, weights, folder, &out.opset));
  CHAIRLIFT_RETURN_IF_ERROR(Verify(out.graph));
  CHAIRLIFT_RETURN_IF_ERROR(InferTakenBranches(out.graph));
  JoinQuantizedMasks(out.graph);
  CHAIRLIFT_RETURN_IF_ERROR(Verify(out.graph));
  out.producer = model.producer_name();
  if (!model.producer_version().empty()) out.producer += " " + model.producer_version();
  for (const auto& entry : model.metadata_props()) out.metadata[entry.key()] = entry.value();
  return out;
}

// Other files that are mistaken for ONNX files, by their first bytes.
struct KnownFile {
  std::string_view begins;
  const char* says;
};
using namespace std::string_view_literals;
constexpr KnownFile kKnownFiles[] = {
    {"version https://git-lfs"sv, "Git LFS's pointer to one: run `git lfs pull`"},
    {"PK\x03\x04"sv,
     "a ZIP archive, such as a PyTorch checkpoint or a .keras file: export it to ONNX "
     "(docs/reference/exporters.md)"},
    {"GGUF"sv,
     "a GGUF file of llama.cpp: export the original model to ONNX (docs/reference/exporters.md)"},
    {"\x89HDF"sv,
     "an HDF5 file, such as Keras writes: export it to ONNX (docs/reference/exporters.md)"},
    {"\x80\x02"sv, "a Python pickle, such as an old PyTorch checkpoint: export it to ONNX"},
    {"\x80\x03"sv, "a Python pickle: export the model to ONNX (docs/reference/exporters.md)"},
    {"\x80\x04"sv, "a Python pickle: export the model to ONNX (docs/reference/exporters.md)"},
    {"\x89PNG"sv, "a PNG image"},
    {"\x1f\x8b"sv, "a gzip archive: unpack it first"},
    {"<!DOCTYPE"sv, "an HTML page: its download failed"},
    {"<!doctype"sv, "an HTML page: its download failed"},
    {"<html"sv, "an HTML page: its download failed"},
    {"{"sv, "JSON text"},
};

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
  const std::string_view text(static_cast<const char*>(bytes), size);
  for (const KnownFile& known : kKnownFiles) {
    if (text.starts_with(known.begins))
      return InvalidArgument("not an ONNX model but {}", known.says);
  }
  return InvalidArgument(
      "not an ONNX model: the protobuf message is truncated or malformed (the file has {} bytes)",
      size);
}

StatusOr<ImportedModel> Import(int64_t size, const ReadAt& read, const ImportOptions& options,
                               const DataFolder& folder) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckSize(size, options));
  onnx::ModelProto model;
  DetachedWeights weights;
  CHAIRLIFT_ASSIGN_OR_RETURN(std::optional<std::string> rest,
                             DetachWeights(size, options.detach_from_bytes, read, &weights));
  if (rest.has_value()) {
    CHAIRLIFT_RETURN_IF_ERROR(Parse(rest->data(), rest->size(), model));
    rest.reset();
  } else {
    // Not mapped: if a mapped file shrinks, the process crashes.
    const Tensor bytes = HugeTensor(DType::kUInt8, Shape{size});
    CHAIRLIFT_RETURN_IF_ERROR(read(/*offset=*/0, size, const_cast<void*>(bytes.raw())));
    CHAIRLIFT_RETURN_IF_ERROR(Parse(bytes.raw(), bytes.byte_size(), model));
  }
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
