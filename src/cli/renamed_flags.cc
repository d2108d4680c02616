#include "cli/renamed_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/renamed.h"

namespace chairlift {
namespace {

// A value that is not a whole number, or is too large, is returned unchanged: the flag then refuses
// it.
std::string Scaled(const std::string& value, int64_t factor) {
  constexpr int64_t kMost = 1'000'000'000'000;
  int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  const bool whole = error == std::errc() && stop == end && number >= 0 && number <= kMost;
  return whole ? std::to_string(number * factor) : value;
}

}  // namespace

std::vector<std::string> RenameFlags(std::vector<std::string>* arguments) {
  const auto command = std::find_if(arguments->begin(), arguments->end(), [](const auto& argument) {
    return !argument.starts_with('-');
  });
  std::vector<std::string> warnings;
  if (command == arguments->end()) return warnings;
  for (auto at = command + 1; at != arguments->end() && *at != "--"; ++at) {
    const size_t equals = at->find('=');
    for (const Renamed& renamed : RenamedFlags()) {
      if (*command != renamed.command || at->substr(0, equals) != renamed.from) continue;
      if (equals != std::string::npos) {
        *at = fmt::format("{}={}", renamed.to, Scaled(at->substr(equals + 1), renamed.factor));
      } else {
        *at = renamed.to;
        if (renamed.factor != 1 && at + 1 != arguments->end()) {
          *(at + 1) = Scaled(*(at + 1), renamed.factor);
        }
      }
      warnings.push_back(fmt::format(
          "chairlift {}: warning: {}{}", *command, RenamedNotice(renamed),
          renamed.factor == 1 ? "" : fmt::format(", with its value times {}", renamed.factor)));
      break;
    }
  }
  return warnings;
}

}  // namespace chairlift
