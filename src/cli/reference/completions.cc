#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/reference/entries.h"
#include "cli/reference/pages.h"

namespace chairlift::reference {
namespace {

std::vector<Entry> EntriesOf(const CLI::App& command) {
  std::vector<Entry> entries;
  for (Group& group : GroupsOf(command)) {
    for (Entry& entry : group.entries) entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const Entry& entry : EntriesOf(command)) {
    if (!entry.positional) names.insert(names.end(), entry.names.begin(), entry.names.end());
  }
  return names;
}

// The first sentence or clause of a description, for a menu.
std::string Short(const Entry& entry) {
  std::string text = entry.about.substr(0, entry.about.find_first_of(";\n"));
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '[' || c == ']' || c == ':' || c == '\\' || c == '`') continue;
    out += c;
  }
  return out;
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  std::string text = fmt::format(
      "# bash completion for {0}\n"
      "_{0}() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} "
      "command=${{COMP_WORDS[1]}}\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '{1} {2}' -- \"$cur\")\n"
      "    return\n"
      "  fi\n"
      "  case \"$command $prev\" in\n",
      app.get_name(), fmt::join(commands, " "), fmt::join(FlagsOf(app), " "));
  for (const CLI::App* command : app.get_subcommands({})) {
    for (const Entry& entry : EntriesOf(*command)) {
      if (entry.positional || entry.value.empty()) continue;
      const std::string words =
          entry.choices.empty()
              ? (entry.is_path ? std::string("compgen -f -- \"$cur\"") : std::string("true"))
              : fmt::format("compgen -W '{}' -- \"$cur\"", fmt::join(entry.choices, " "));
      for (const std::string& name : entry.names) {
        text += fmt::format("    '{} {}') mapfile -t COMPREPLY < <({}); return ;;\n",
                            command->get_name(), name, words);
      }
    }
  }
  text += "  esac\n  case \"$command\" in\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    text += fmt::format(
        "    {}) case \"$cur\" in\n"
        "      -*) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\") ;;\n"
        "      *) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
        "    esac ;;\n",
        command->get_name(), fmt::join(FlagsOf(*command), " "));
  }
  return text + fmt::format("  esac\n}}\ncomplete -o filenames -F _{0} {0}\n", app.get_name());
}

std::string ZshCompletion(const CLI::App& app) {
  std::string text =
      fmt::format("#compdef {0}\n_{0}() {{\n  local -a commands\n  commands=(\n", app.get_name());
  for (const CLI::App* command : app.get_subcommands({})) {
    text += fmt::format("    '{}:{}'\n", command->get_name(), command->get_description());
  }
  text +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  case ${words[2]} in\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    text += fmt::format("    {})\n      _arguments \\\n", command->get_name());
    for (const Entry& entry : EntriesOf(*command)) {
      if (entry.positional) continue;
      const std::string action = entry.choices.empty()
                                     ? (entry.is_path ? "_files" : " ")
                                     : fmt::format("({})", fmt::join(entry.choices, " "));
      for (const std::string& name : entry.names) {
        text +=
            fmt::format("        '{}{}[{}]{}' \\\n", entry.several ? "*" : "", name, Short(entry),
                        entry.value.empty() ? "" : fmt::format(":{}:{}", entry.value, action));
      }
    }
    text += "        '*:file:_files'\n      ;;\n";
  }
  return text + fmt::format("  esac\n}}\n_{0} \"$@\"\n", app.get_name());
}

std::string FishCompletion(const CLI::App& app) {
  std::string text = fmt::format("# fish completion for {}\n", app.get_name());
  for (const CLI::App* command : app.get_subcommands({})) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -f -a {} -d '{}'\n",
                        app.get_name(), command->get_name(), command->get_description());
    for (const Entry& entry : EntriesOf(*command)) {
      if (entry.positional) continue;
      text += fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}'", app.get_name(),
                          command->get_name());
      for (const std::string& name : entry.names) {
        text += name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!entry.value.empty()) text += entry.is_path ? " -r" : " -x";
      if (!entry.choices.empty()) {
        text += fmt::format(" -a '{}'", fmt::join(entry.choices, " "));
      }
      text += fmt::format(" -d '{}'\n", Short(entry));
    }
  }
  return text;
}

}  // namespace chairlift::reference
