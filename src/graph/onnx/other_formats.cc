// Signatures of the files that people take for ONNX models.
#include "graph/onnx/other_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/excerpt.h"

namespace chairlift {
namespace {

using namespace std::string_view_literals;

constexpr const char* kExport = "export the model to ONNX (docs/reference/exporters.md)";
constexpr const char* kDownload = "download the file again";

struct Format {
  size_t offset;
  std::string_view bytes;
  const char* is;
  const char* works;
};
constexpr Format kFormats[] = {
    {0, "version https://git-lfs"sv, "Git LFS's pointer to one", "run `git lfs pull`"},
    {0, "GGUF"sv, "a GGUF file of llama.cpp", kExport},
    {4, "TFL3"sv, "a TensorFlow Lite model", kExport},
    {4, "ORTM"sv, "an ORT-format model of ONNX Runtime",
     "use the .onnx file that it was made from"},
    {0, "ptrt"sv, "a TensorRT engine", "use the .onnx file that it was made from"},
    {0, "ftrt"sv, "a TensorRT engine", "use the .onnx file that it was made from"},
    {0, "\x89HDF"sv, "an HDF5 file, such as Keras writes", kExport},
    {0, "\x80\x02"sv, "a Python pickle, such as an old PyTorch checkpoint", kExport},
    {0, "\x80\x03"sv, "a Python pickle", kExport},
    {0, "\x80\x04"sv, "a Python pickle, such as a scikit-learn model", kExport},
    {0, "\x80\x05"sv, "a Python pickle, such as a scikit-learn model", kExport},
    {0, "\x93NUMPY"sv, "a NumPy array", "name the model; arrays are inputs: chairlift run --input"},
    {0, "\x89PNG"sv, "a PNG image", "name the model; images are sent to the server"},
    {0, "\xff\xd8\xff"sv, "a JPEG image", "name the model; images are sent to the server"},
    {0, "%PDF"sv, "a PDF document", "name the model's file"},
    {0,
     "\x7f"
     "ELF"sv,
     "a program or library", "name the model's file"},
    {0, "\x1f\x8b"sv, "a gzip archive", "unpack it first"},
    {0, "BZh"sv, "a bzip2 archive", "unpack it first"},
    {0,
     "\xfd"
     "7zXZ"sv,
     "an xz archive", "unpack it first"},
    {0, "\x28\xb5\x2f\xfd"sv, "a Zstandard archive", "unpack it first"},
    {0, "7z\xbc\xaf"sv, "a 7-Zip archive", "unpack it first"},
    {257, "ustar"sv, "a tar archive", "unpack it first"},
};

// The kind of a ZIP archive, by the names of its first files.
Format ArchiveOf(std::string_view head) {
  const auto has = [&](std::string_view name) { return head.find(name) != head.npos; };
  if (has("data.pkl")) return {0, {}, "a PyTorch checkpoint", kExport};
  if (has("model.weights.h5") || has("metadata.json")) return {0, {}, "a Keras model", kExport};
  if (has(".npy")) return {0, {}, "an archive of NumPy arrays", "name the model's file"};
  if (has(".onnx")) return {0, {}, "a ZIP archive", "unpack it first: it holds an .onnx file"};
  return {0, {}, "a ZIP archive", "unpack it first or, if a framework saved it, export the model"};
}

// Little endian length of a JSON header, then the header.
bool IsSafetensors(std::string_view head, int64_t size) {
  if (head.size() < 10 || head[8] != '{') return false;
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i) {
    header = header << 8 | static_cast<unsigned char>(head[static_cast<size_t>(i)]);
  }
  return header < static_cast<uint64_t>(size);
}

bool IsText(std::string_view head) {
  return std::none_of(head.begin(), head.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) &&
           !absl::ascii_isspace(static_cast<unsigned char>(c));
  });
}

Format TextFormatOf(std::string_view text) {
  const std::string begin = absl::AsciiStrToLower(std::string(text.substr(0, 512)));
  if (absl::StrContains(begin, "<html") || absl::StrContains(begin, "<!doctype html")) {
    return {0, {}, "an HTML page", "its download failed: download the file again"};
  }
  if (absl::StrContains(begin, "<net ")) {
    return {0, {}, "a model of OpenVINO", "use the .onnx file that it was made from"};
  }
  if (absl::StrContains(begin, "<error>")) {
    return {0, {}, "an error message of a file store", kDownload};
  }
  if (absl::StartsWith(begin, "<")) return {0, {}, "an XML document", "name the model's file"};
  if (absl::StartsWith(begin, "{")) return {0, {}, "JSON text", "name the model's .onnx file"};
  return {0, {}, nullptr, "name the model's .onnx file, or download it again"};
}

std::optional<Format> FormatOf(std::string_view head, int64_t size) {
  if (head.starts_with("PK\x03\x04"sv)) return ArchiveOf(head);
  for (const Format& format : kFormats) {
    if (format.offset < head.size() && head.substr(format.offset).starts_with(format.bytes)) {
      return format;
    }
  }
  if (IsSafetensors(head, size)) return Format{0, {}, "a safetensors file", kExport};
  if (IsText(head)) return TextFormatOf(head);
  return std::nullopt;
}

// Whether one of the message's first fields is longer than the rest of the file: the file is cut
// off.
bool EndsTooEarly(std::string_view head, int64_t size) {
  const auto varint = [&](size_t& at) {
    uint64_t value = 0;
    for (int shift = 0; at < head.size() && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(head[at++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return std::optional(value);
    }
    return std::optional<uint64_t>();
  };
  constexpr uint64_t kFields = 25;  // of ModelProto
  for (size_t at = 0; at < head.size();) {
    const std::optional<uint64_t> tag = varint(at);
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > kFields) return false;
    const std::optional<uint64_t> value = varint(at);
    if (!value || (*tag & 7) == 0) continue;
    if ((*tag & 7) != 2) return false;
    const auto left = static_cast<uint64_t>(size) - at;
    if (*value > left) return true;
    if (*value > head.size() - at) return false;  // the rest is not in `head`
    at += *value;
  }
  return false;
}

}  // namespace

std::string OtherFormat(std::string_view head, int64_t size, bool has_no_graph) {
  if (size == 0) {
    return fmt::format("not an ONNX model: the file is empty; {}", kDownload);
  }
  if (const std::optional<Format> format = FormatOf(head, size)) {
    const std::string is =
        format->is != nullptr
            ? format->is
            : fmt::format("text that begins '{}'",
                          Shortened(head.substr(0, head.find_first_of("\r\n")), 40));
    return fmt::format("not an ONNX model but {}; {}", is, format->works);
  }
  if (has_no_graph) {
    return fmt::format(
        "not an ONNX model: it holds no graph, as other protobuf files (a TensorFlow SavedModel, "
        "Core ML); {}",
        kExport);
  }
  if (EndsTooEarly(head, size)) {
    return fmt::format("the ONNX model is truncated: the file ends after {} bytes; {}", size,
                       kDownload);
  }
  return fmt::format(
      "not an ONNX model: the file ({} bytes) is malformed or of another format; download it "
      "again, "
      "or {}",
      size, kExport);
}

}  // namespace chairlift
