#include "tensor/npy.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/npy_text.h"

namespace chairlift {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct DescrRow {
  std::string_view descr;
  DType dtype;
};
constexpr DescrRow kDescrs[] = {
    {"<f4", DType::kFloat},  {"<f8", DType::kDouble}, {"<f2", DType::kFloat16},
    {"|i1", DType::kInt8},   {"<i2", DType::kInt16},  {"<i4", DType::kInt32},
    {"<i8", DType::kInt64},  {"|u1", DType::kUInt8},  {"<u2", DType::kUInt16},
    {"<u4", DType::kUInt32}, {"<u8", DType::kUInt64}, {"|b1", DType::kBool},
};

// The text after `'key':` in the header's dictionary, or nothing.
std::optional<std::string_view> Field(std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}':", key);
  const size_t at = header.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(at + quoted.size());
  const size_t text = rest.find_first_not_of(' ');
  if (text == std::string_view::npos) return std::nullopt;
  return rest.substr(text);
}

StatusOr<Shape> ParseShape(std::string_view text) {
  const size_t close = text.find(')');
  if (text.empty() || text[0] != '(' || close == std::string_view::npos) {
    return InvalidArgument("the header's shape is not a tuple");
  }
  text = text.substr(1, close - 1);
  Shape shape;
  while (true) {
    const size_t digit = text.find_first_not_of(" ,");
    if (digit == std::string_view::npos) return shape;
    text = text.substr(digit);
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (error != std::errc() || dim < 0) {
      return InvalidArgument("the header's shape has '{}' where a dimension should be", text);
    }
    if (shape.rank() == 32) return InvalidArgument("more than 32 dimensions");
    shape.Append(dim);
    text = text.substr(static_cast<size_t>(end - text.data()));
  }
}

}  // namespace

StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < 10 || text.substr(0, 6) != kMagic) {
    return InvalidArgument("{}", text.starts_with("PK")
                                     ? "it is an archive of arrays (.npz), not a .npy file; save "
                                       "the array alone with numpy.save"
                                     : "not a .npy file; numpy.save writes one");
  }
  const int major = static_cast<uint8_t>(text[6]);
  if (major < 1 || major > 3) return InvalidArgument(".npy format version {} is unknown", major);
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (text.size() < 8 + length_bytes) return InvalidArgument("the file ends inside its header");
  size_t header_size = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    header_size |= static_cast<size_t>(static_cast<uint8_t>(text[8 + i])) << (8 * i);
  }
  const size_t begin = 8 + length_bytes;
  if (header_size > text.size() - begin) return InvalidArgument("the file ends inside its header");
  const std::string_view header = text.substr(begin, header_size);

  const auto descr = Field(header, "descr");
  const auto order = Field(header, "fortran_order");
  const auto dims = Field(header, "shape");
  if (!descr || !order || !dims) {
    return InvalidArgument("the header lacks one of descr, fortran_order, shape");
  }
  if (order->substr(0, 4) == "True") {
    return Unimplemented("Fortran order: save numpy.ascontiguousarray(x) instead");
  }
  if (const auto type = NpyTextType(*descr)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ParseShape(*dims));
    return ParseNpyText(*type, shape, text.substr(begin + header_size));
  }
  DType dtype = DType::kUndefined;
  for (const DescrRow& row : kDescrs) {
    if (descr->size() >= 5 && descr->substr(1, 3) == row.descr) dtype = row.dtype;
  }
  if (dtype == DType::kUndefined) {
    return Unimplemented(
        "arrays of element type {} are not supported; save one of float32, float64, float16, int8 "
        "to int64, uint8 to uint64, bool or strings, little endian",
        descr->substr(0, descr->find(',')));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ParseShape(*dims));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t count, shape.Checked(DTypeSize(dtype)));
  const size_t data_bytes = static_cast<size_t>(count) * DTypeSize(dtype);
  const std::string_view data = text.substr(begin + header_size);
  if (data.size() < data_bytes) {
    return InvalidArgument("the file is truncated: shape {} of {} needs {} bytes, the file has {}",
                           shape.ToString(), DTypeName(dtype), data_bytes, data.size());
  }
  Tensor tensor = Tensor::Allocate(dtype, shape);
  std::memcpy(tensor.raw(), data.data(), data_bytes);
  return tensor;
}

StatusOr<Tensor> ReadNpy(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return InvalidArgument("{}: that is a folder; name a .npy file", path.string());
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return NotFound("cannot open {}: {}; name a .npy file", path.string(), std::strerror(errno));
  }
  const std::streamoff size = file.tellg();
  if (size < 0) return InvalidArgument("{} is not a regular file", path.string());
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), size)) {
    return InvalidArgument("cannot read {}: {}", path.string(), std::strerror(errno));
  }
  auto tensor = ParseNpy(bytes);
  if (!tensor.ok()) return Annotate(tensor.status(), path.string());
  return tensor;
}

namespace {

std::string HeaderOf(std::string_view descr, const Shape& shape) {
  std::string dims;
  for (int64_t d : shape) dims += fmt::format("{},", d);
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dims);
  // Magic, version, length and dictionary together are a multiple of 64 bytes, ending in a newline.
  dict.append(63 - (10 + dict.size()) % 64, ' ');
  dict += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\x00';
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict;
}

}  // namespace

std::string FormatNpyHeader(DType dtype, const Shape& shape) {
  std::string_view descr = "<f4";
  for (const DescrRow& row : kDescrs) {
    if (row.dtype == dtype) descr = row.descr;
  }
  return HeaderOf(descr, shape);
}

Status WriteNpy(const std::filesystem::path& path, const Tensor& tensor) {
  Tensor written = tensor;
  if (tensor.dtype() == DType::kBFloat16) {
    written = Tensor::Allocate(DType::kFloat, tensor.shape());
    for (int64_t i = 0; i < tensor.size(); ++i) {
      written.data<float>()[i] = static_cast<float>(tensor.data<BFloat16>()[i]);
    }
  }
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  const auto write = [&file](std::string_view bytes) {
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  if (written.dtype() == DType::kBytes) {
    const NpyTextArray array = FormatNpyText(written);
    write(HeaderOf(array.descr, written.shape()));
    write(array.data);
  } else {
    write(FormatNpyHeader(written.dtype(), written.shape()));
    write({static_cast<const char*>(written.raw()), written.byte_size()});
  }
  if (!file.flush()) {
    return Unavailable("cannot write {}: {}", path.string(), std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace chairlift
