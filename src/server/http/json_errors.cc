#include "server/http/json_errors.h"

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace chairlift::http {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

// Keeps nothing but the position of the first error.
class Locator : public nlohmann::json_sax<nlohmann::json> {
 public:
  size_t bytes_read() const { return bytes_read_; }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    bytes_read_ = position;
    return false;
  }

 private:
  size_t bytes_read_ = 0;  // up to the one that is wrong
};

}  // namespace

std::string JsonErrorPosition(std::string_view json) {
  const std::string_view begin = json.substr(0, kMostBytes);
  Locator locator;
  if (nlohmann::json::sax_parse(begin.begin(), begin.end(), &locator)) return "";
  const size_t read = locator.bytes_read();
  if (read <= begin.size()) return read == 0 ? "" : fmt::format(" at byte {}", read - 1);
  if (begin.size() < json.size()) return fmt::format(" behind byte {}", begin.size());
  return fmt::format(" at byte {}: it ends too early", begin.size());
}

Status GivenTwice(std::string_view field) {
  return InvalidArgument("\"{}\" is given twice", field.substr(0, 64));
}

}  // namespace chairlift::http
