#include "cli/reference/entries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace chairlift::reference {
namespace {

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    if (end > start) parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

Entry Describe(const CLI::Option& option) {
  Entry entry;
  entry.positional = option.get_positional();
  if (entry.positional) {
    entry.names = {option.get_name()};
  } else {
    for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  }
  entry.several = option.get_expected_max() > 1;
  entry.required = option.get_required();
  entry.about = option.get_description();
  if (option.get_type_size() == 0) return entry;
  // "LEVEL:{debug,info}", or "PORT:…" with what the value is checked for.
  const std::string type = option.get_type_name();
  entry.value = type.substr(0, type.find(':'));
  if (const size_t open = type.find('{'); open != std::string::npos) {
    entry.choices = SplitAt(type.substr(open + 1, type.find('}', open) - open - 1), ',');
  }
  entry.default_value = option.get_default_str();
  entry.is_path =
      entry.value.find("DIR") != std::string::npos || entry.value.find("FILE") != std::string::npos;
  return entry;
}

}  // namespace

std::vector<Group> GroupsOf(const CLI::App& command) {
  std::vector<Group> groups;
  const auto add = [&](const std::string& name, Entry entry) {
    const auto same = [&](const Group& group) { return group.name == name; };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(groups.end(), Group{name, {}});
    found->entries.push_back(std::move(entry));
  };
  for (const bool positional : {true, false}) {
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_positional() != positional || option->get_group().empty()) continue;
      add(positional ? "Arguments" : option->get_group(), Describe(*option));
    }
  }
  return groups;
}

std::string Heading(const Entry& entry) {
  if (entry.positional) return entry.names.front() + (entry.several ? "..." : "");
  return fmt::format("{}{}{}", fmt::join(entry.names, ", "), entry.value.empty() ? "" : " ",
                     entry.value);
}

std::string Paragraph(const Entry& entry) {
  std::string text = entry.about;
  std::replace(text.begin(), text.end(), '\n', ' ');
  const auto add = [&](const std::string& sentence) {
    if (!text.empty() && text.back() != '.') text += '.';
    text += " " + sentence;
  };
  if (!entry.choices.empty()) add(fmt::format("One of: {}.", fmt::join(entry.choices, ", ")));
  if (!entry.default_value.empty()) add(fmt::format("Default: {}.", entry.default_value));
  if (entry.required) add("Required.");
  return text;
}

}  // namespace chairlift::reference
