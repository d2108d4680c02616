#include "graph/onnx/dimension_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace chairlift {
namespace {

// Separates a shortened name from its number. A name that contains it is numbered too, whatever its
// length, so that it stays unique.
constexpr std::string_view kMark = "~(";

std::string_view Prefix(std::string_view name) {
  size_t end = std::min({name.find(kMark), name.find('*'), size_t{48}, name.size()});
  const auto continues = [&](size_t i) {  // UTF-8
    return i < name.size() && (static_cast<unsigned char>(name[i]) & 0xC0) == 0x80;
  };
  while (end > 0 && continues(end)) --end;
  return name.substr(0, end);
}

}  // namespace

std::string DimensionNames::Symbol(const std::string& name) {
  if (name.size() <= kMaxSymbolLength && name.find(kMark) == std::string::npos) return name;
  const auto [it, fresh] = shortened_.try_emplace(name);
  if (fresh) it->second = fmt::format("{}{}{})", Prefix(name), kMark, shortened_.size() - 1);
  return it->second;
}

}  // namespace chairlift
